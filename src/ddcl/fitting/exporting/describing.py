"""What whoever deploys an exported program must know: as JSON, and as a page with code that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcl.fitting.exporting.files import ENDINGS, METADATA, Format
from ddcl.fitting.exporting.programs import Program, What
from ddcl.version import __version__

if TYPE_CHECKING:
    from ddcl.fitting.fitted import Fitted

MODEL = "model"
"""The program in a folder, without its ending."""


def metadata_of(fitted: Fitted, what: What, program: Program) -> dict[str, Any]:
    """The facts; texts in it are what users called things, and nothing in it names a folder of this machine."""
    settings = fitted.settings
    encoder = settings.encoder
    if encoder is not None and Path(encoder).expanduser().is_dir():
        encoder = Path(encoder).name
    facts = {
        "ddcl": __version__,
        "what": what,
        "inputs": program.inputs,
        "outputs": program.outputs,
        "classes": None if fitted.classes is None else list(fitted.classes),
        "names": fitted.names,
        "temperature": fitted.temperature,
        "normalise": settings.normalise,
        "encoder": encoder,
        "fingerprint": settings.fingerprint,
        "pooling": None if encoder is None else "mean",
        "max_tokens": settings.max_tokens,
    }
    return facts if what == "readout" else facts | {"pad_id": fitted.encoder.tokenizer.pad_token_id or 0}


_PAGE = """\
# A model exported by ddcl {version}

`{model}` takes the tokens of texts and gives, for each text, `mixture` (the share of every prototype), `centroid` (the
same as a vector), `prototype` (the number of the nearest){probabilities}. It is float32, for the CPU. `{metadata}` has
the names of classes and prototypes, the temperature and the most tokens. The other files are the tokenizer's.

It needs {package}, tokenizers and numpy, and neither ddcl nor transformers. Run this beside the folder:

```python
{code}```
"""

_TOKENS = """\
import json
from pathlib import Path

import numpy as np
import {package}
from tokenizers import Tokenizer

folder = Path({folder!r})
known = json.loads((folder / "{metadata}").read_text())
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_truncation(known["max_tokens"])
tokenizer.enable_padding(pad_id=known["pad_id"])

texts = ["a text", "another, longer text"]
encoded = tokenizer.encode_batch(texts)
input_ids = np.array([one.ids for one in encoded], dtype=np.int64)
attention_mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
"""

_CALLS = {
    "onnx": """\
session = onnxruntime.InferenceSession(str(folder / "{model}"))
found = session.run(None, {{"input_ids": input_ids, "attention_mask": attention_mask}})
answer = dict(zip([one.name for one in session.get_outputs()], found))
""",
    "torch": """\
program = torch.export.load(folder / "{model}").module()
answer = program(input_ids=torch.from_numpy(input_ids), attention_mask=torch.from_numpy(attention_mask))
""",
}
_PACKAGES = {"onnx": "onnxruntime", "torch": "torch"}
_CLASSES = '[known["classes"][number] for number in answer["probabilities"].argmax(1)]'
_PROTOTYPES = 'answer["prototype"].tolist()'


def usage_page(folder: str, export_format: Format, *, head: bool) -> str:
    """A page to lie beside an exported program: what it is, and how to run it.

    Args:
        folder: the name of the folder it lies in.
        export_format: of the program.
        head: whether there are probabilities of classes.
    """
    package, model = _PACKAGES[export_format], MODEL + ENDINGS[export_format]
    tokens = _TOKENS.format(package=package, folder=folder, metadata=METADATA)
    answer = _CALLS[export_format].format(model=model)
    return _PAGE.format(
        version=__version__,
        model=model,
        metadata=METADATA,
        package=package,
        probabilities=" and `probabilities` (of every class)" if head else "",
        code=f"{tokens}{answer}print({_CLASSES if head else _PROTOTYPES})\n",
    )
