"""Glyphs that matplotlib's own fonts lack: Chinese, Japanese, Korean and emoji come from the fonts below, whatever family
a figure asks for. As an IPython extension for kernels, so that styles which set the family (seaborn's) lose nothing; as a
matplotlibrc for programs, which the template's build writes.
"""

import importlib.abc
import importlib.machinery
import sys

FAMILIES = ("DejaVu Sans", "Noto Sans CJK JP", "Symbola")  # matplotlib brings the first; Debian: fonts-noto-cjk, fonts-symbola
_MODULE = "matplotlib.font_manager"


def present(manager):
    """FAMILIES that this machine has."""
    names = {font.name for font in manager.ttflist}
    return [family for family in FAMILIES if family in names]


def matplotlibrc():
    """Text of the file that names them after matplotlib's default."""
    from matplotlib import font_manager

    return f"font.family: {', '.join(['sans-serif', *present(font_manager.fontManager)])}\n"


def _mend(module):
    """Every list of fonts ends with ours: where a glyph is missing, matplotlib takes the next font."""
    kind = module.FontManager
    stock = getattr(kind, "_find_fonts_by_props", None)
    if stock is None or hasattr(stock, "sandal"):
        return

    def find(self, prop, fontext="ttf", *args, **kwargs):
        paths = stock(self, prop, fontext, *args, **kwargs)
        if fontext == "ttf":
            ours = (self.findfont(family, fallback_to_default=False) for family in present(self))
            paths = [*paths, *(path for path in ours if path not in paths)]
        return paths

    find.sandal = True
    kind._find_fonts_by_props = find


class _Finder(importlib.abc.MetaPathFinder):
    """Mends the module as soon as it is imported, and is gone."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                _mend(module)

            spec.loader.exec_module = exec_module
        return spec


def load_ipython_extension(ip):
    if _MODULE in sys.modules:
        _mend(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())
