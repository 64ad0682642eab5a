"""Building what is tested."""

from e2e.settings import ROOT, Settings
from e2e.tools import run, say
from embedded.node import NodeProject

#: The scripts that the project's own tests run beside its workers.
_DRIVER = ROOT / "tests" / "integration" / "interop" / "node"
#: Bytes that the image may add to its base.
MOST_ADDED = 150_000_000


def build(settings: Settings) -> None:
    """Build the image under test from this checkout, where none was named."""
    if not settings.build:
        return
    say(f"building {settings.image} on {settings.python_image}")
    _build(settings.image, settings, context=str(ROOT))


def remove(settings: Settings) -> None:
    """Remove the image again, if it was built here. The builder keeps its layers, for the next build."""
    if settings.build:
        run("docker", "image", "rm", settings.image, check=False)


def added_bytes(settings: Settings) -> int:
    """What the image adds to its base."""
    sizes = run("docker", "image", "inspect", "-f", "{{.Size}}", settings.image, settings.python_image).stdout.split()
    return int(sizes[0]) - int(sizes[1])


def build_driver(settings: Settings) -> None:
    """Build the image of a Node driver: BullMQ's own package, as an application uses it."""
    say(f"building {settings.driver_image}")
    packages = NodeProject(_DRIVER).prepare()
    base = settings.node_js_image
    install = "" if base else "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs"
    recipe = f'FROM {base or settings.python_image}\n{install}\nWORKDIR /driver\nCOPY . .\nENTRYPOINT ["node"]\n'
    run(
        "sh",
        "-ec",
        # The packages are in the cache and the scripts in the checkout: the context is made of both.
        'context=$(mktemp -d); trap "rm -rf $context" EXIT; cp -r "$1"/. "$2"/. "$context"; '
        'printf %s "$3" >"$context/Dockerfile"; docker build -q --network host -t "$4" "$context"',
        "sh",
        packages,
        _DRIVER,
        recipe,
        settings.driver_image,
        seconds=900,
    )


def _build(tag: str, settings: Settings, *, context: str) -> None:
    run(
        "docker",
        "build",
        "--network",
        "host",
        "--build-arg",
        f"PYTHON_IMAGE={settings.python_image}",
        "-t",
        tag,
        context,
        seconds=1200,
    )


def user_of(image: str, name: str) -> int:
    """The numeric id of a user in an image."""
    return int(run("docker", "run", "--rm", "--network", "none", "--entrypoint", "id", image, "-u", name).stdout)
