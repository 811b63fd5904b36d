"""What `make release` makes: packages that were tried out, and the papers that go with them."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
