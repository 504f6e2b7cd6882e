"""Record what an official chat template makes of our conversations: FORMAT NAME TEMPLATE ORIGIN.

The template itself stays out of the project; ORIGIN says where it is from, with its version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from heptagram_backend.tokenizer import CheckpointTokenizer
from tests.formats.conversations import CONVERSATIONS, given
from tests.formats.tokenizers import write_checkpoint


def main(format_name: str, name: str, template: Path, origin: str, folder: Path) -> None:
    write_checkpoint(folder, "llama" if format_name == "llama3_json" else "qwen")
    (folder / "chat_template.jinja").write_bytes(template.read_bytes())
    tokenizer = CheckpointTokenizer(folder)
    cases = {}
    for case, asked in CONVERSATIONS.items():
        inputs = given(format_name, asked, tokenizer)
        kwargs = {key: value for key, value in inputs.items() if key != "messages"}
        text = tokenizer.render(inputs["messages"], **kwargs, **_FIXED.get(format_name, {}))
        cases[case] = {"given": inputs, "text": text}
    recorded = {"format": format_name, "origin": origin, "cases": cases}
    target = Path(__file__).parent / "goldens" / f"{name}.json"
    target.write_text(json.dumps(recorded, ensure_ascii=True, indent=1) + "\n", encoding="utf-8")


_FIXED = {"llama3_json": {"date_string": "26 Jul 2024"}}  # Llama 3.2 writes the day into the prompt

if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as temporary:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], Path(temporary))
