"""Access: who asks, and whether they may. The one check, for all APIs of the server.

- ``gate``: from the headers of a request to its caller, by a token or without one.
- ``caller``: what the grants of a caller allow.
- ``checked_catalogue``: a catalogue that answers a caller only what they may ask; every call has a rule
there. - ``keys``: idempotency keys, of which each token has its own.
- ``rights``: what the rules share: revisions that are read, keys that are left out.
- ``read_rules``, ``write_rules``, ``transactions``: the rules themselves; ``format_rules``: those of formats.
- ``locations``: where contents may say that tables are.
"""

from penstock.server.access.caller import Caller
from penstock.server.access.checked_catalogue import CheckedCatalogue
from penstock.server.access.gate import AccessGate, OpenGate, TokenGate
from penstock.server.access.idempotency_keys import UnmarkedKeys

__all__ = ["AccessGate", "Caller", "CheckedCatalogue", "OpenGate", "TokenGate", "UnmarkedKeys"]
