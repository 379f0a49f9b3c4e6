// The mathematics of the page: mixtures at a temperature, and the warmed bank between two recorded steps.

// q_k = softmax_k(-d_k / T), computed as the library does, from squared distances
export function mixture(squaredDistances, temperature) {
  const nearest = squaredDistances.reduce((least, distance) => Math.min(least, distance));
  const weights = squaredDistances.map((distance) => Math.exp((nearest - distance) / temperature));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}

export const entropy = (shares) => shares.reduce((sum, q) => (q > 0 ? sum - q * Math.log(q) : sum), 0);

// shares of places: those of prototypes that have become one are added up
export function grouped(shares, groups) {
  const sums = new Map();
  shares.forEach((share, number) => {
    const group = groups[number];
    const known = sums.get(group) ?? { members: [], share: 0 };
    known.members.push({ number, share });
    known.share += share;
    sums.set(group, known);
  });
  for (const one of sums.values()) one.members.sort((a, b) => b.share - a.share);
  return [...sums.values()].sort((a, b) => b.share - a.share);
}

// which recorded step a temperature follows, and how far it is on the way to the next, in ln T
export function step(relative, temperatures) {
  const last = temperatures.length - 1;
  if (relative >= temperatures[last]) return { at: last, next: last, part: 0 };
  if (relative <= temperatures[0]) return { at: 0, next: 0, part: 0 };
  let at = 0;
  while (temperatures[at + 1] <= relative) at += 1;
  const part = Math.log(relative / temperatures[at]) / Math.log(temperatures[at + 1] / temperatures[at]);
  return { at, next: at + 1, part };
}

export const between = (a, b, part) => a + (b - a) * part;
