package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// serveMemoryDumps answers memorydump and removememorydump: what is asked for is done at once, but to the claim
// "broken".
func (c *cluster) serveMemoryDumps(mux *http.ServeMux, subresources string) {
	const claims = "POST /api/v1/namespaces/{ns}/persistentvolumeclaims"
	mux.HandleFunc(claims, func(w http.ResponseWriter, r *http.Request) {
		var object map[string]any
		if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		answer(w, http.StatusCreated, object)
	})
	change := func(verb string, dump func(*http.Request, *v1.VirtualMachine) error) {
		mux.HandleFunc("PUT "+subresources+"namespaces/{ns}/"+resourceVMs+"/{name}/"+verb,
			func(w http.ResponseWriter, r *http.Request) {
				found, ok := c.find(resourceVMs, r.PathValue("ns"), r.PathValue("name")).(*v1.VirtualMachine)
				if !ok {
					refuse(w, apierrors.NewNotFound(group(resourceVMs), r.PathValue("name")))
					return
				}
				vm := found.DeepCopy()
				if err := dump(r, vm); err != nil {
					refuse(w, apierrors.NewBadRequest(err.Error()))
					return
				}
				c.put1(resourceVMs, vm)
				w.WriteHeader(http.StatusAccepted)
			})
	}
	change("memorydump", func(r *http.Request, vm *v1.VirtualMachine) error {
		request := &v1.VirtualMachineMemoryDumpRequest{}
		if err := json.NewDecoder(r.Body).Decode(request); err != nil {
			return err
		}
		if last := vm.Status.MemoryDumpRequest; request.ClaimName == "" && last != nil {
			request.ClaimName = last.ClaimName
		}
		if request.ClaimName == "" {
			return errors.New("Memory dump requires claim name on first use")
		}
		request.Phase = v1.MemoryDumpCompleted
		if request.ClaimName == "broken" {
			request.Phase, request.Message = v1.MemoryDumpFailed, "the claim is full"
		}
		vm.Status.MemoryDumpRequest = request
		return nil
	})
	change("removememorydump", func(_ *http.Request, vm *v1.VirtualMachine) error {
		vm.Status.MemoryDumpRequest = nil
		return nil
	})
}

// serveVolumes answers addvolume and removevolume. The claim "data" exists, and so does "slow", which never gets
// ready.
func (c *cluster) serveVolumes(mux *http.ServeMux, subresources string) {
	claims := []string{"data", "slow", "imported"}
	const path = "GET /api/v1/namespaces/{ns}/persistentvolumeclaims"
	mux.HandleFunc(path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		for _, name := range claims {
			if name == r.PathValue("name") {
				found := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
				if name == "imported" {
					owner := true
					found.OwnerReferences = []metav1.OwnerReference{
						{Kind: "DataVolume", Name: name, Controller: &owner},
					}
				}
				answer(w, http.StatusOK, found)
				return
			}
		}
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumeclaims"}, r.PathValue("name")))
	})
	c.serveMemoryDumps(mux, subresources)
	for _, resource := range []string{resourceVMs, resourceVMIs} {
		for _, verb := range []string{"addvolume", "removevolume"} {
			mux.HandleFunc("PUT "+subresources+"namespaces/{ns}/"+resource+"/{name}/"+verb,
				func(w http.ResponseWriter, r *http.Request) {
					if err := c.changeVolumes(r, resource, verb == "addvolume"); err != nil {
						var status apierrors.APIStatus
						if !errors.As(err, &status) {
							status = apierrors.NewBadRequest(err.Error())
						}
						stream.WriteStatus(w, status.Status())
						return
					}
					w.WriteHeader(http.StatusAccepted)
				})
		}
	}
}

func (c *cluster) changeVolumes(r *http.Request, resource string, add bool) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	options := &v1.AddVolumeOptions{} // of which RemoveVolumeOptions are a part
	if err := json.Unmarshal(body, options); err != nil {
		return err
	}
	edit := func(spec *v1.VirtualMachineInstanceSpec) error {
		if add {
			return hotplug.Add(spec, options)
		}
		return hotplug.Remove(spec, options.Name)
	}
	ns, name := r.PathValue("ns"), r.PathValue("name")
	if resource == resourceVMs {
		found, ok := c.find(resourceVMs, ns, name).(*v1.VirtualMachine)
		if !ok {
			return apierrors.NewNotFound(group(resourceVMs), name)
		}
		vm := found.DeepCopy()
		if err := edit(&vm.Spec.Template.Spec); err != nil {
			return err
		}
		if len(options.DryRun) == 0 {
			c.put1(resourceVMs, vm)
		}
	}
	if found, ok := c.find(resourceVMIs, ns, name).(*v1.VirtualMachineInstance); ok {
		vmi := found.DeepCopy()
		if err := edit(&vmi.Spec); err != nil {
			return err
		}
		vmi.Status.VolumeStatus = nil
		for _, volume := range hotplug.Volumes(&vmi.Spec) {
			status := v1.VolumeStatus{
				Name: volume.Name, Target: "sda", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{},
			}
			if volume.Name == "slow" {
				status.Target, status.Phase, status.Message = "", v1.VolumePending,
					"Waiting for attachment pod hp-volume-x to run"
			}
			vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, status)
		}
		if len(options.DryRun) == 0 {
			c.put1(resourceVMIs, vmi)
		}
	} else if resource == resourceVMIs {
		return apierrors.NewNotFound(group(resourceVMIs), name)
	}
	c.note(r, bytes.TrimSpace(body))
	return nil
}
