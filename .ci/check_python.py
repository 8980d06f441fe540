"""Says what this Python lacks for jaxrl, or nothing. Runs on any Python, however old."""

import sys

OLDEST, NEWEST = (3, 11), (3, 14)


def lacks():
    version = "%d.%d" % sys.version_info[:2]
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return "jaxrl needs Python 3.11 to 3.14, and %s is Python %s" % (sys.executable, version)
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return "%s lacks the module %s (Debian, Ubuntu: apt install python%s-venv)" % (
            sys.executable,
            error.name,
            version,
        )
    return ""


if __name__ == "__main__":
    missing = lacks()
    if missing:
        sys.exit("error: %s; another Python can be named: make setup PYTHON=/path/to/python3" % missing)
