package sizing

import "k8s.io/apimachinery/pkg/api/resource"

// What the file of a guest's memory has besides the memory, bytes.
const (
	// DumpRoom is that of a memory dump, an ELF core: its headers; KubeVirt's.
	DumpRoom = 100 << 20
	// SavedRoom is that of the memory in a snapshot: the state of the guest's devices and the memory of its screen.
	SavedRoom = 160 << 20
)

// fileSystem is how many parts a claim has, of which its file system takes one.
const fileSystem = 18

// FileClaim returns the size of a claim whose file system has room for a file of so many bytes: whole MiB.
func FileClaim(bytes int64) *resource.Quantity {
	return resource.NewQuantity((bytes+bytes/(fileSystem-1)+1<<20-1)>>20<<20, resource.BinarySI)
}
