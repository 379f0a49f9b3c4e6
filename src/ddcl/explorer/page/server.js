// Questions to the server. Of those that go by the same name only the newest is waited for.

const waiting = new Map();

export class TakenBack extends Error {}

async function answered(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw new TakenBack();
    throw new Error("The server does not answer any more: start `ddcl explore` again.");
  }
  let found;
  try {
    found = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw new TakenBack();
    throw new Error(`The server failed (status ${response.status}).`);
  }
  if (!response.ok) throw new Error(found.error);
  return found;
}

export const get = (address) => answered(address, {});

export async function newest(name, address, body) {
  waiting.get(name)?.abort();
  const turn = new AbortController();
  waiting.set(name, turn);
  const options = { signal: turn.signal };
  if (body !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  return answered(address, options);
}

export function takeBack(name) {
  waiting.get(name)?.abort();
}

export const put = (address, body) =>
  answered(address, { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
