package dashboardcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/logs"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/report/stats"
	"github.com/virtkit/virtkit/pkg/version"
)

// actions do what pages ask for, with the user's credentials.
type actions struct {
	factory *cli.Factory
	client  *client.Client
	// ctx ends with the dashboard; changed says that an answer of Forbidden is another now.
	ctx     context.Context
	changed func()
	// panicked does what is to be done before a panic ends the program.
	panicked func()

	mu    sync.Mutex
	rules map[string]*rights // of namespaces
}

// rights are what the server says is allowed in a namespace.
type rights struct {
	status  *authorizationv1.SubjectRulesReviewStatus // nil until they have been read
	reading bool
	asked   time.Time // when they were asked for last
}

func (a *actions) Do(ctx context.Context, verb lifecycle.Verb, targets ...lifecycle.Target) error {
	return lifecyclecmd.Do(ctx, a.factory, a.client, verb, targets...)
}

// noted records a change that undo cannot take back in the journal, unless err is not nil, which it returns.
func (a *actions) noted(err error, verb lifecycle.Verb, of string) error {
	if err != nil {
		return err
	}
	return lifecyclecmd.RecordOther(a.factory, verb, of)
}

func (a *actions) Why(ctx context.Context, namespace, name string) (*why.Report, error) {
	facts, err := gather.Facts(ctx, a.client, namespace, name, a.factory.Now())
	if err != nil {
		return nil, err
	}
	return why.Explain(facts), nil
}

func (a *actions) Doctor(ctx context.Context) *doctor.Report {
	f := a.factory
	connection := f.Connection()
	namespace, err := f.Namespace()
	if err != nil {
		namespace = ""
	}
	facts := doctor.Gather(ctx, func() (*client.Client, error) { return a.client, nil }, doctor.Program{
		Version: version.Get(), Name: f.Program, Context: connection.Context, Server: connection.Server,
		CertNotAfter: connection.CertNotAfter,
	}, namespace, f.Now)
	facts.Explain = func(err error) string { return cli.Explain(err, connection) }
	return doctor.Examine(facts)
}

func (a *actions) Stats(ctx context.Context, namespace string) (stats.List, error) {
	return a.client.Stats(ctx, namespace)
}

func (a *actions) Object(ctx context.Context, resource, namespace, name string) (string, error) {
	object, err := a.object(ctx, resource, namespace, name)
	if err != nil {
		return "", err
	}
	if meta, ok := object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	out, err := yaml.Marshal(object)
	return string(out), err
}

// sizings are the resources of instance types and preferences.
var sizings = []string{store.Instancetypes, store.ClusterInstancetypes, store.Preferences, store.ClusterPreferences}

func (a *actions) object(ctx context.Context, resource, namespace, name string) (map[string]any, error) {
	group := "/apis/" + instancetypev1beta1.SchemeGroupVersion.String()
	switch {
	case resource == store.Pools:
		group = sets.Pool.Group
	case snapshotGroup(resource) != "":
		group = "/apis/" + snapshotGroup(resource) + "/" + snapshotv1beta1.SchemeGroupVersion.Version
	case resource == client.Claims:
		group = "/api/v1"
	case !slices.Contains(sizings, resource):
		return a.client.Raw(ctx, resource, namespace, name)
	}
	path := group + "/"
	if namespace != "" {
		path += "namespaces/" + namespace + "/"
	}
	var out map[string]any
	err := a.client.Read(ctx, path+resource+"/"+name, nil, &out)
	return out, err
}

// consoleTail is how much of what a guest wrote before is sent again, bytes.
const consoleTail = 32 << 10

func (a *actions) Console(ctx context.Context, key store.Key, ends page.ConsoleEnds) error {
	remote := &console.Remote{API: a.client, Namespace: key.Namespace, Name: key.Name, Join: true, Tail: consoleTail}
	again := false
	session := &console.Session{
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			defer func() { again = true }()
			return remote.Connect(ctx, again, func() {})
		},
		In: ends.In, StopInput: ends.StopInput, Out: ends.Out, Reconnect: true,
		Notify: func(e console.Event, err error) {
			if e == console.Connected {
				ends.Connected()
			} else {
				ends.Lost(err)
			}
		},
		Panicked: a.panicked,
	}
	return session.Run(ctx)
}

func (a *actions) EvacuationPlan(ctx context.Context, node string, withDisks bool) (*evacuate.Report, error) {
	facts, err := evacuate.Gather(ctx, a.client, node)
	if err != nil {
		return nil, err
	}
	facts.WithDisks = withDisks
	return evacuate.NewPlan(facts), nil
}

func (a *actions) Evacuate(ctx context.Context, plan *evacuate.Report) error {
	report, err := evacuate.Run(ctx, a.client, plan, evacuate.Options{Now: a.factory.Now})
	if err != nil && (report == nil || !report.Cordoned) {
		return err
	}
	return errors.Join(err, a.noted(nil, "evacuate", plan.Node))
}

// Choices reads only names, but for who uses the claims, and one list does not wait for another.
func (a *actions) Choices(ctx context.Context, namespace string) page.Choices {
	var out page.Choices
	var all sync.WaitGroup
	read := func(into *[]string, list func() ([]string, error)) {
		all.Go(func() {
			if names, err := list(); err == nil { // a field without suggestions can be filled in all the same
				*into = append([]string{}, names...) // not nil, which is what could not be read
			}
		})
	}
	group := "/apis/" + instancetypev1beta1.SchemeGroupVersion.String()
	scoped := func(cluster, own string) func() ([]string, error) {
		return func() ([]string, error) {
			names, err := a.client.Names(ctx, group, "", cluster)
			local, ownErr := a.client.Names(ctx, group, namespace, own)
			for _, name := range local {
				names = append(names, strings.TrimSuffix(own, "s")+"/"+name)
			}
			return names, errors.Join(err, ownErr)
		}
	}
	read(&out.Namespaces, func() ([]string, error) { return a.client.Namespaces(ctx) })
	read(&out.Instancetypes, scoped(store.ClusterInstancetypes, store.Instancetypes))
	read(&out.Preferences, scoped(store.ClusterPreferences, store.Preferences))
	read(&out.Claims, func() ([]string, error) {
		found, _, err := volume.Candidates(ctx, a.client, namespace)
		out.UsedBy = map[string][]string{}
		var names []string
		for i := range found {
			names = append(names, found[i].Name)
			out.UsedBy[found[i].Name] = found[i].UsedBy
		}
		return names, err
	})
	all.Wait()
	return out
}

func (a *actions) Create(ctx context.Context, namespace string, vm *v1.VirtualMachine) error {
	_, err := a.client.CreateVM(ctx, namespace, vm, false)
	return a.noted(err, "create vm", namespace+"/"+vm.Name)
}

func (a *actions) Verdict(ctx context.Context, before, after string) (*diff.Object, error) {
	edit, err := diff.ReadEdit(before, after)
	if err != nil {
		return nil, err
	}
	return diff.Verdict(ctx, a.client, edit)
}

func (a *actions) Apply(ctx context.Context, before, after string) error {
	edit, err := diff.ReadEdit(before, after)
	if err != nil {
		return err
	}
	if err := diff.Apply(ctx, a.client, edit); err != nil {
		return err
	}
	object := unstructured.Unstructured{Object: edit.Before}
	key := store.Key{Namespace: object.GetNamespace(), Name: object.GetName()}
	return a.record(lifecycle.Edit, key, object.GetKind() == v1.VirtualMachineInstanceGroupVersionKind.Kind)
}

func (a *actions) Cordon(ctx context.Context, node string, on bool) error {
	verb := lifecycle.Verb("uncordon")
	if on {
		verb = "cordon"
	}
	return a.noted(a.client.Cordon(ctx, node, on), verb, node)
}

func (a *actions) Machine(ctx context.Context, key store.Key, instance bool) (*page.Details, error) {
	out := &page.Details{}
	var err error
	if !instance {
		if out.VM, err = a.client.VM(ctx, key.Namespace, key.Name); err != nil {
			return nil, err
		}
	}
	out.VMI, err = a.client.VMI(ctx, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) && !instance {
		out.VMI, err = nil, nil
	}
	return out, err
}

func (a *actions) Guest(ctx context.Context, key store.Key) (*v1.VirtualMachineInstanceGuestAgentInfo, error) {
	return a.client.GuestAgentInfo(ctx, key.Namespace, key.Name)
}

func (a *actions) Screenshot(ctx context.Context, key store.Key) ([]byte, error) {
	body, err := a.client.Screenshot(ctx, key.Namespace, key.Name, false)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, page.MaxPicture+1))
	if err == nil && len(data) > page.MaxPicture {
		err = fmt.Errorf("the picture of the screen has more than %d MiB", page.MaxPicture>>20)
	}
	return data, err
}

func (a *actions) Tail(ctx context.Context, key store.Key, lines int64, w io.Writer) error {
	return logs.Copy(ctx, a.client, key.Namespace, key.Name,
		logs.Options{Source: logs.Serial, Tail: lines, Follow: true}, w)
}

// rulesLimit is how long reading what is allowed may take; until it has been read once, everything seems so.
const rulesLimit = 10 * time.Second

// refusalLasts is how old a refusal may be before the server is asked again: somebody may have granted the right since.
const refusalLasts = 5 * time.Second

// Forbidden knows what the server says is allowed; the first question about a namespace has it asked, and later each
// refusal that is no longer new.
func (a *actions) Forbidden(namespace string, verb lifecycle.Verb) string {
	group, resource, name := needed(verb)
	return a.forbidden(namespace, group, resource, name)
}

// ForbiddenTo does as Forbidden does, for a verb of the API.
func (a *actions) ForbiddenTo(namespace, verb, resource string) string {
	group := v1.GroupVersion.Group
	switch plural, sub, _ := strings.Cut(resource, "/"); {
	case plural == client.Nodes: // the rights in any namespace have those to the cluster's objects
		if a.forbidden(namespace, corev1.GroupName, resource, verb) != "" {
			return "you may not " + verb + " " + resource + " of the cluster"
		}
		return ""
	case plural == client.Claims:
		group = corev1.GroupName
	case plural == page.Exports:
		group = exportv1beta1.SchemeGroupVersion.Group
	case plural == store.Pools:
		group = poolv1beta1.SchemeGroupVersion.Group
	case snapshotGroup(plural) != "":
		group = snapshotGroup(plural)
	case slices.Contains([]string{"addvolume", "removevolume", "console", "vnc", "portforward"}, sub):
		group = v1.SubresourceStorageGroupVersion.Group
	}
	return a.forbidden(namespace, group, resource, verb)
}

func (a *actions) forbidden(namespace, group, resource, name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.rules[namespace]
	if r == nil {
		r = &rights{}
		a.rules[namespace] = r
	}
	if r.status == nil {
		a.read(namespace, r)
		return ""
	}
	if r.status.Incomplete || allowed(r.status.ResourceRules, group, resource, name) {
		return ""
	}
	if a.factory.Now().Sub(r.asked) >= refusalLasts {
		a.read(namespace, r)
	}
	return "you may not " + name + " " + resource + " in " + namespace
}

// read has the rights of a namespace read, unless they are being read; a.mu is held. What was read before counts until
// then, and when they cannot be read.
func (a *actions) read(namespace string, r *rights) {
	if r.reading {
		return
	}
	r.reading, r.asked = true, a.factory.Now()
	go func() {
		ctx, cancel := context.WithTimeout(a.ctx, rulesLimit)
		defer cancel()
		status, err := a.client.Rules(ctx, namespace)
		a.mu.Lock()
		r.reading = false
		changed := err == nil && !reflect.DeepEqual(r.status, status)
		if err == nil {
			r.status = status
		}
		a.mu.Unlock()
		if changed {
			a.changed()
		}
	}()
}

// needed returns the right that a verb needs, as the API's authorization names it.
func needed(verb lifecycle.Verb) (group, resource, name string) {
	subresources := v1.SubresourceStorageGroupVersion.Group
	switch verb {
	case lifecycle.Delete:
		return v1.GroupVersion.Group, client.VMs, "delete"
	case lifecycle.MigrateCancel:
		return v1.GroupVersion.Group, client.Migrations, "delete"
	case lifecycle.SoftReboot:
		return subresources, client.VMIs + "/softreboot", "update"
	}
	if verb.OnInstance() {
		return subresources, client.VMIs + "/" + string(verb), "update"
	}
	return subresources, client.VMs + "/" + string(verb), "update"
}

func allowed(rules []authorizationv1.ResourceRule, group, resource, verb string) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	_, sub, _ := strings.Cut(resource, "/")
	// A rule for some names is taken as one: the server says of which.
	return slices.ContainsFunc(rules, func(r authorizationv1.ResourceRule) bool {
		return has(r.Verbs, verb) && has(r.APIGroups, group) &&
			(has(r.Resources, resource) || sub != "" && slices.Contains(r.Resources, "*/"+sub))
	})
}
