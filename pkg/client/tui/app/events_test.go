package app

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestMachineOfAnEvent goes to the machine that an event is of, and not to one that something else is called like.
func TestMachineOfAnEvent(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		"VirtualMachine/web":                 "prod/web",
		"VirtualMachineInstance/web":         "prod/web",
		"VirtualMachineInstanceMigration/m1": "prod/web",
		"Pod/virt-launcher-web-abcde":        "prod/web",
		"Pod/hp-volume-web-abcde":            "prod/web",
		"Pod/web":                            "It is not of a virtual machine",
		"PersistentVolumeClaim/web":          "It is not of a virtual machine",
		"VirtualMachineSnapshot/web":         "It is not of a virtual machine",
		"VirtualMachinePool/web":             "It is not of a virtual machine",
		"Pod/virt-launcher-":                 "It is not of a virtual machine",
		"VirtualMachineInstance/gone":        "Its machine is not there any more",
	} {
		kind, name, _ := strings.Cut(object, "/")
		a := New(world(&fake{}))
		drive(t, a, sizes[1])
		a.World.Events.Load(map[store.Key]*store.Event{{Namespace: "prod", Name: "e"}: {
			Namespace: "prod", Name: "e", Kind: kind, Object: name, Reason: "Happened", Last: now,
		}})
		press(t, a, "4", "enter")
		title := ansi.Strip(strings.Split(a.screen(), "\n")[2])
		if got := a.notice + strings.TrimSpace(strings.TrimPrefix(title, " Events 1")); !strings.Contains(got, want) ||
			strings.Contains(want, "achine") && strings.Contains(title, ">") {
			t.Errorf("%s: %q, not %q", object, got, want)
		}
		a.Close()
	}
}
