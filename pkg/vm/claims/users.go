package claims

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// User is a VM, a VMI that no VM made, or a pod that uses a claim.
type User struct {
	// Kind is "" for a VM, else vmi or pod.
	Kind, Name string
	// of is the VMI that a pod belongs to, "" for none.
	of string
}

// Kinds of users other than VMs.
const (
	kindVMI = "vmi"
	kindPod = "pod"
)

// String returns the user as kubectl names it, and a VM by its name alone.
func (u User) String() string {
	if u.Kind == "" {
		return u.Name
	}
	return u.Kind + "/" + u.Name
}

// Users says by claim who uses the claims of a namespace. It is filled by AddVM, AddVMI and AddPods.
type Users map[string][]User

func (u Users) add(claim string, user User) {
	if claim != "" && !slices.Contains(u[claim], user) {
		u[claim] = append(u[claim], user)
	}
}

func (u Users) addVolumes(user User, volumes []v1.Volume) {
	for i := range volumes {
		u.add(Name(&volumes[i]), user)
	}
}

// AddVM adds the claims of a VM, whether it runs or not.
func (u Users) AddVM(vm *v1.VirtualMachine) {
	if vm.Spec.Template != nil {
		u.addVolumes(User{Name: vm.Name}, vm.Spec.Template.Spec.Volumes)
	}
}

// AddVMI adds the claims of a VMI, as those of its VM where it has one, and those that are on their way out of it.
func (u Users) AddVMI(vmi *v1.VirtualMachineInstance) {
	user := Machine(vmi)
	u.addVolumes(user, vmi.Spec.Volumes)
	for _, s := range Leaving(vmi) {
		u.add(OfStatus(s), user)
	}
}

// Machine returns the VM that made a VMI, or the VMI itself when none did.
func Machine(vmi *v1.VirtualMachineInstance) User {
	if owner := metav1.GetControllerOfNoCopy(vmi); owner == nil || owner.Kind != "VirtualMachine" {
		return User{Kind: kindVMI, Name: vmi.Name}
	}
	return User{Name: vmi.Name}
}

// AddPods adds the claims of pods that have not ended. All pods of a namespace are to be given at once: an attachment
// pod belongs to the VMI of its launcher.
func (u Users) AddPods(pods []corev1.Pod) {
	instances := map[types.UID]string{}
	for i := range pods {
		if owner := life.InstanceOf(&pods[i]); owner != nil {
			instances[pods[i].UID] = owner.Name
		}
	}
	for i := range pods {
		pod := &pods[i]
		user := User{Kind: kindPod, Name: pod.Name, of: instances[pod.UID]}
		if launcher := life.LauncherOf(pod); launcher != nil {
			user.of = instances[launcher.UID]
		}
		for _, claim := range podClaims(pod) {
			u.add(claim, user)
		}
	}
}

// Others returns who uses a claim other than a VM, its VMI and their pods, by name: VMs first, pods last. A pod is left
// out when its VM or VMI is in the list.
func (u Users) Others(claim, vm string) []User {
	others := slices.DeleteFunc(slices.Clone(u[claim]), func(o User) bool {
		return o == User{Name: vm} || vm != "" && o.of == vm
	})
	others = slices.DeleteFunc(others, func(o User) bool {
		return o.of != "" && slices.ContainsFunc(u[claim], func(of User) bool {
			return of.Kind != kindPod && of.Name == o.of
		})
	})
	rank := map[string]int{"": 0, kindVMI: 1, kindPod: 2}
	slices.SortFunc(others, func(a, b User) int {
		if n := rank[a.Kind] - rank[b.Kind]; n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return others
}

// Keeps reports users among which is a VM or a VMI, which keep a claim; a pod's use ends by itself.
func Keeps(users []User) bool {
	return slices.ContainsFunc(users, func(o User) bool { return o.Kind != kindPod })
}
