"""The little of NVML that the benchmark needs: which process holds how much of GPU 0. Through ctypes, nothing to install."""
import ctypes


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Nvml:
    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.library.nvmlInit_v2()
        self.device = ctypes.c_void_p()
        self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def used(self):
        """Bytes of the whole card that are in use, whoever has them."""
        memory = (ctypes.c_ulonglong * 3)()
        self.library.nvmlDeviceGetMemoryInfo(self.device, memory)
        return memory[2]

    def processes(self):
        """(pid, bytes) of compute processes and MPS clients, each once."""
        found = {}
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"):
            count = ctypes.c_uint(256)
            table = (Process * 256)()
            if getattr(self.library, name)(self.device, ctypes.byref(count), table) != 0:
                continue
            for entry in table[:count.value]:
                if entry.used != ctypes.c_ulonglong(-1).value:
                    found[entry.pid] = entry.used
        return list(found.items())
