"""An ament_python package: ``colcon build`` runs this file."""

from setuptools import setup

NAME = "protodepth_ros"

setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    install_requires=["setuptools", "protodepth"],
    zip_safe=True,
    maintainer="protodepth contributors",
    maintainer_email="protodepth@example.org",
    description="Dense depth from an image and sparse points, adapted to each place",
    license="Apache-2.0",
    entry_points={"console_scripts": [f"complete = {NAME}.node:main"]},
)
