"""A GPU made of NumPy: it runs the PTX that NVRTC makes, and sees everything that the PTX does.

Its parts are in packages whose imports run one way (``tests/test_house.py``): ptx; arithmetic and
threads; memory, counting and checks; synchronisation; access, copies and matrices; instructions;
sampling and recording. Above them are the machine, which runs the batches of a launch, and the
device.
"""

from tilewise.devices.emulator.device import Emulator
from tilewise.devices.emulator.memory.arrays import EmulatorArray
from tilewise.devices.emulator.sampling.sample import UnlikeBlocksError

__all__ = ["Emulator", "EmulatorArray", "UnlikeBlocksError"]
