"""A program for ``make install``, before anything is installed: can this machine take what will be installed?"""

from __future__ import annotations

import platform
import sys

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.checks import libpython_folder
from heptagram_backend.server.find import wheel_obstacle


def main() -> int:
    """Status 1 where pip would fail; a warning where only serving would."""
    obstacle = wheel_obstacle()
    if obstacle and (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        sys.stderr.write(f"{obstacle}\n")
        return 1
    try:
        if obstacle:
            raise LaunchError(obstacle)
        libpython_folder()
    except LaunchError as error:
        sys.stderr.write(f"warning: `make serve` will not work here: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
