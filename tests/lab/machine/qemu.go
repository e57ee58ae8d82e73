package machine

import (
	"path/filepath"
)

// files are what images/build has made of the lab.
type files struct{ disk, kernel, initrd, qemu string }

func filesIn(root string) files {
	dir := filepath.Join(root, "bin", "images", "lab")
	return files{
		disk: filepath.Join(dir, "disk.ext4"), kernel: filepath.Join(dir, "vmlinuz"),
		initrd: filepath.Join(dir, "initrd"), qemu: filepath.Join(dir, "qemu"),
	}
}

// command runs one of QEMU's programs with its own libraries, whatever this machine has.
func (f files) command(program string, args ...string) []string {
	return append([]string{
		filepath.Join(f.qemu, "usr/lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(f.qemu, "usr/lib/x86_64-linux-gnu"),
		filepath.Join(f.qemu, "usr/bin", program),
	}, args...)
}

// cmdline is the kernel's command line: pages for guests that want huge ones, IOMMU groups, names of network cards that
// count.
const cmdline = "root=LABEL=lab rw console=ttyS0 intel_iommu=on iommu=pt net.ifnames=0 hugepages=64"

// arguments are QEMU's. All files without a directory are in the machine's.
func arguments(f files) []string {
	share := filepath.Join(f.qemu, "usr/share")
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-d", "cpu_reset", // what reset the machine, if it is reset
		"-L", filepath.Join(share, "qemu"), "-L", filepath.Join(share, "seabios"),
		"-qmp", "unix:qmp.sock,server=on,wait=off", "-serial", "file:console.log",
		"-kernel", f.kernel, "-initrd", f.initrd, "-append", cmdline,

		// Two sockets with memory of their own. TCG says which features of the model it does not have.
		"-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi,tb-size=1024",
		"-cpu", "EPYC-v4,+svm,+npt", "-m", "6G", "-smp", "4,sockets=2,cores=2",
		"-object", "memory-backend-ram,id=m0,size=3G", "-object", "memory-backend-ram,id=m1,size=3G",
		"-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
		"-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on",

		// Its disk and the build. What is not on the disk when QEMU is killed is not missed.
		"-drive", "file=root.qcow2,if=none,id=root,cache=unsafe,discard=unmap",
		"-device", "virtio-blk-pci,drive=root",
		"-drive", "file=build.ext4,format=raw,if=none,id=build,readonly=on",
		"-device", "virtio-blk-pci,drive=build",
		// The kernel chooses the port: QMP's `info usernet` tells it.
		"-netdev", "user,id=control,hostfwd=tcp:127.0.0.1:0-:22", "-device", "virtio-net-pci,netdev=control",

		// Hardware to pass through: a card with virtual functions, an NVMe disk, a USB stick; each behind a port or
		// controller of its own, so in an IOMMU group of its own.
		"-device", "pcie-root-port,id=port1,slot=1", "-netdev", "user,id=card,restrict=on",
		"-device", "igb,bus=port1,netdev=card",
		"-device", "pcie-root-port,id=port2,slot=2", "-drive", "file=nvme.img,format=raw,if=none,id=nvme",
		"-device", "nvme,bus=port2,drive=nvme,serial=LABNVME",
		"-device", "qemu-xhci", "-drive", "file=usb.img,format=raw,if=none,id=usb",
		"-device", "usb-storage,drive=usb,serial=LABUSB",
		"-device", "virtio-scsi-pci,id=scsi", "-drive", "file=lun.img,format=raw,if=none,id=lun",
		"-device", "scsi-hd,bus=scsi.0,drive=lun,serial=LABLUN",
	}
}
