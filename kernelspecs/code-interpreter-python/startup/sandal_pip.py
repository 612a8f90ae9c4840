"""%pip, which tells to restart the kernel where that is needed only: when a package was replaced or taken away of which
this process has imported a part. The stock magic says so each time. An IPython extension.
"""

import importlib
import importlib.metadata
import shlex
import sys


def _installed():
    """(name, version, when it was put there) by name; a package installed anew is another one."""
    found = {}
    for package in importlib.metadata.distributions():
        folder = getattr(package, "_path", None)
        try:
            found.setdefault(package.name, (package.version, folder.stat().st_mtime_ns if folder else 0))  # what covers comes first
        except (OSError, KeyError, AttributeError, TypeError):
            pass  # half removed by someone else just now
    return found


def _modules():
    """Top-level modules by package."""
    modules = {}
    for module, packages in importlib.metadata.packages_distributions().items():
        for package in packages:
            modules.setdefault(package, set()).add(module)
    return modules


def _pip(ip, line):
    before, modules = _installed(), _modules()
    ip.system(f"{shlex.quote(sys.executable)} -m pip {line}")
    importlib.invalidate_caches()
    after = _installed()
    stale = {name for name, what in before.items() if after.get(name) != what}
    loaded = sorted(name for name in stale if any(module in sys.modules for module in modules.get(name, ())))
    if loaded:
        print(f"Note: restart the kernel to use what has changed; it has imported {', '.join(loaded)} already.")


def load_ipython_extension(ip):
    def pip(line):
        """Run the pip of this kernel's environment: %pip install NAME..."""
        _pip(ip, line)

    ip.register_magic_function(pip, "line", "pip")
