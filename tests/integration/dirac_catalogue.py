"""Ask DIRAC's own FileCatalog, in DIRAC's Python, with the plug-in of contrib/; print its answers as JSON.

M2Crypto, a wrapper of OpenSSL, has no wheel: a stand-in takes its place, because nothing here is encrypted
by DIRAC. DIRAC's configuration comes from a file, without a configuration server.

    python dirac_catalogue.py dirac.cfg '[["getReplicas", ["/lofar/L1"], {}]]'
"""

import importlib.abc
import importlib.machinery
import json
import sys
import types


class _NothingType(type):
    def __getattr__(cls, name: str) -> object:
        return lambda *_words, **_options: None


class _NothingModule(types.ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NothingType(name, (Exception,), {})


class _NothingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A stand-in for M2Crypto and its modules."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "M2Crypto":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _NothingModule(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _NothingFinder())

from DIRAC import gConfig  # noqa: E402
from DIRAC.ConfigurationSystem.Client.ConfigurationData import gConfigurationData  # noqa: E402
from DIRAC.ConfigurationSystem.private.ConfigurationData import CFG  # noqa: E402
from DIRAC.Resources.Catalog.FileCatalog import FileCatalog  # noqa: E402

configuration = CFG()
configuration.loadFromFile(sys.argv[1])
gConfigurationData.mergeWithLocal(configuration)
assert gConfig.getSections("/Resources/FileCatalogs")["OK"]
catalogue = FileCatalog(catalogs=["HydratorCatalog"], vo="ska")
print("VALID", catalogue.isOK(), flush=True)
for method, lfns, options in json.loads(sys.argv[2]):
    print("ANSWER", json.dumps(getattr(catalogue, method)(lfns, **options)), flush=True)
