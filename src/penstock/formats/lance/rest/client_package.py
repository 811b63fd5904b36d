"""The package of Lance's REST client, without the client: the server needs the models in it only.

``lance_namespace`` takes its request and response classes from ``lance_namespace_urllib3_client.models``. The
package around them builds every class of a REST client when it is imported, which takes longer than all else
of Lance's namespace together. This module is imported for its effect, before anything of Lance's, in the
processes of a server and nowhere else: a program of its user imports the package as it is.
"""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

NAME: Final = "lance_namespace_urllib3_client"


def postpone_client_import() -> None:
    """Let the package's own code run when an attribute of it is first asked for.

    Nothing happens if the package is not installed, or was imported already.
    """
    if NAME in sys.modules or (spec := find_spec(NAME)) is None or spec.loader is None:
        return
    package, loader, once = module_from_spec(spec), spec.loader, threading.RLock()
    is_running = False

    def import_now(name: str) -> Any:
        nonlocal is_running
        with once:  # another thread waits here until the package is whole; its own code looks further on
            if not is_running and "__getattr__" in vars(package):
                is_running = True
                try:
                    loader.exec_module(package)
                    del package.__getattr__
                finally:
                    is_running = False
        try:
            return vars(package)[name]
        except KeyError:
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}") from None

    package.__getattr__ = import_now  # type: ignore[method-assign]
    sys.modules[NAME] = package


postpone_client_import()
