package controller

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/tests/gotypes"
)

// elsewhere are functions that read what the manager's cache drops from an object which is not the cache's, with the
// reason. A function is written as package.name.
var elsewhere = map[string]string{
	"vmicontroller.computeContainer":     builds,
	"vmicontroller.Attachment":           builds,
	"vmicontroller.Provisioning":         builds,
	"vmicontroller.consoleLog":           builds,
	"vmicontroller.virtiofsdContainers":  builds,
	"migrationcontroller.Pod":            builds,
	"uploadcontroller.Pod":               builds,
	"exportcontroller.Pod":               builds,
	"migrationcontroller.withoutSecrets": builds,

	"vmicontroller.Used": builds,

	"migrationcontroller.plan":        builds,
	"vmicontroller.HostModelSelector": live,
	"resizecontroller.room":           live,
	"resizecontroller.shrinks":        live,
	"exportcontroller.isReady":        live,
	"resizecontroller.wait":           live,
	"resizecontroller.why":            live,
	"restorecontroller.adoptClaims":   live,
	"restorecontroller.own":           live,
	"vmicontroller.ask":               live,

	"volumemigrationcontroller.copies": live,

	"policycontroller.slimPeer": around,
	"policycontroller.peers":    around,
}

const (
	builds = "the pod is one that it makes"
	live   = "the object was read from the API server"
	around = "the pod is of the reconciler's own cache"
)

// The manager's cache drops most of pods, claims and nodes, and what it drops reads as empty. No reconciler reads such
// a field, label, annotation or condition, unless it has the object from elsewhere.
func TestStripped(t *testing.T) {
	dropped := allDropped(t)
	if !slices.Contains(dropped["PodSpec"], "Affinity") || slices.Contains(dropped["PodSpec"], "NodeName") {
		t.Fatalf("of a pod's spec, the cache drops %v", dropped["PodSpec"])
	}
	unused := maps.Clone(elsewhere)
	program := gotypes.Load(t, "../..", "./pkg/controller/...")
	for _, p := range program.Packages {
		for _, file := range p.Files {
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := p.Name + "." + f.Name.Name
				for _, read := range readsOf(f, p.Info, dropped) {
					if _, ok := elsewhere[name]; ok {
						delete(unused, name)
						continue
					}
					t.Errorf("%s: %s reads %s, which the manager's cache drops (cache.go): keep it there, "+
						"read the object live, or "+
						"say in elsewhere where the function has it from", program.Position(read.pos), name, read.field)
				}
			}
		}
	}
	for name := range unused {
		t.Errorf("%s reads nothing that the cache drops: elsewhere has a line too many", name)
	}
}

// The cache keeps the annotations by which a claim waits for an upload: uploads.Awaiting, no reconciler, reads them.
func TestUploadsKept(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		uploads.AnnotationMade: uploads.MadeFor, uploads.AnnotationImage: "debian/13",
		uploads.AnnotationState: uploads.Encode(uploads.State{Phase: uploads.Failed, Intact: true}),
	}}}
	want := uploads.Awaiting(claim.Annotations)
	kept := cached(claim).(*corev1.PersistentVolumeClaim)
	if got := uploads.Awaiting(kept.Annotations); len(want) != 3 || !slices.Equal(got, want) {
		t.Errorf("the cache has %v of %v", got, want)
	}
}

// allDropped are the fields that the cache drops of pods, claims and nodes, by their struct's name.
func allDropped(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, object := range []any{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.Node{}} {
		maps.Copy(out, droppedFields(t, object))
	}
	return out
}

// droppedFields are the fields, by their struct's name, that the cache's transform empties in an object which has all.
func droppedFields(t *testing.T, object any) map[string][]string {
	t.Helper()
	randfill.NewWithSeed(1).NilChance(0).NumElements(1, 1).MaxDepth(12).Funcs(
		// What slimPod keeps depends on names.
		func(c *corev1.Container, r randfill.Continue) {
			r.FillNoCustom(c)
			c.Args = []string{"--fence-after=1m"}
		},
		func(s *corev1.NodeStatus, r randfill.Continue) {
			r.FillNoCustom(s)
			s.Allocatable = corev1.ResourceList{names.ResourceKVM: resource.MustParse("1")}
		},
		func(c *corev1.PodCondition, r randfill.Continue) { r.FillNoCustom(c); c.Type = corev1.PodScheduled },
		func(c *corev1.NodeCondition, r randfill.Continue) { r.FillNoCustom(c); c.Type = corev1.NodeReady },
	).Fill(object)
	out := map[string][]string{}
	compare(reflect.ValueOf(cached(object)).Elem(), out)
	return out
}

// cached is an object as the manager's cache has it.
func cached(object any) any {
	for kind, by := range cacheOptions().ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) {
			kept, err := by.Transform(object)
			if err != nil {
				panic(err)
			}
			return kept
		}
	}
	panic(fmt.Sprintf("the cache has no transform of %T", object))
}

// compare notes the empty fields of a pod's, claim's or node's structs, but for those of its metadata.
func compare(v reflect.Value, out map[string][]string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			continue
		}
		value := v.Field(i)
		if value.IsZero() {
			out[v.Type().Name()] = append(out[v.Type().Name()], field.Name)
			continue
		}
		for value.Kind() == reflect.Slice || value.Kind() == reflect.Pointer {
			if value.Kind() == reflect.Slice {
				value = value.Index(0)
			} else {
				value = value.Elem()
			}
		}
		if value.Kind() == reflect.Struct && strings.HasSuffix(value.Type().PkgPath(), "api/core/v1") {
			compare(value, out)
		}
	}
}

type read struct {
	pos   token.Pos
	field string
}

// readsOf are the places in a function that read what the cache drops; to assign to it is none.
func readsOf(f *ast.FuncDecl, info *types.Info, fields map[string][]string) (out []read) {
	written := map[ast.Node]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				written[left] = true
			}
		case *ast.IndexExpr:
			if what := droppedKey(n, info); what != "" && !written[n] {
				out = append(out, read{pos: n.Pos(), field: what})
			}
		case *ast.SelectorExpr:
			if what := droppedCondition(n, info); what != "" {
				out = append(out, read{pos: n.Pos(), field: what})
			}
			selection := info.Selections[n]
			if selection == nil || selection.Kind() != types.FieldVal || written[n] {
				return true
			}
			if kind := coreKind(selection.Recv()); slices.Contains(fields[kind], n.Sel.Name) {
				out = append(out, read{pos: n.Pos(), field: kind + "." + n.Sel.Name})
			}
		}
		return true
	})
	return out
}

// coreKind is the name of a type of Kubernetes' core group, or of a pointer to one; "" for others.
func coreKind(t types.Type) string {
	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != "k8s.io/api/core/v1" {
		return ""
	}
	return named.Obj().Name()
}

// empty makes an object of a kind that the cache slims.
var empty = map[string]func() client.Object{
	"Pod":                   func() client.Object { return &corev1.Pod{} },
	"PersistentVolumeClaim": func() client.Object { return &corev1.PersistentVolumeClaim{} },
	"Node":                  func() client.Object { return &corev1.Node{} },
}

// droppedKey says which label or annotation an index expression reads that the cache drops, "" for none. It sees
// object.Labels[key] and object.GetLabels()[key] with a constant key, or one that begins with a constant.
func droppedKey(index *ast.IndexExpr, info *types.Info) string {
	from := index.X
	if call, ok := from.(*ast.CallExpr); ok {
		from = call.Fun
	}
	selector, ok := from.(*ast.SelectorExpr)
	if !ok || info.Selections[selector] == nil {
		return ""
	}
	kind := coreKind(info.Selections[selector].Recv())
	if meta, ok := selector.X.(*ast.SelectorExpr); ok && meta.Sel.Name == "ObjectMeta" { // object.ObjectMeta.Labels
		if selection := info.Selections[meta]; selection != nil {
			kind = coreKind(selection.Recv())
		}
	}
	key, known := constantOf(index.Index, info)
	if empty[kind] == nil || !known {
		return ""
	}
	object, of := empty[kind](), strings.TrimPrefix(selector.Sel.Name, "Get")
	object.SetLabels(map[string]string{key: "x"})
	object.SetAnnotations(map[string]string{key: "x"})
	kept := cached(object).(client.Object)
	if of == "Labels" && kept.GetLabels()[key] == "" || of == "Annotations" && kept.GetAnnotations()[key] == "" {
		return fmt.Sprintf("%s %q of a %s", strings.ToLower(strings.TrimSuffix(of, "s")), key, kind)
	}
	return ""
}

// constantOf is the value of a constant string, or of one that only begins with a constant.
func constantOf(e ast.Expr, info *types.Info) (string, bool) {
	if value := info.Types[e].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value), true
	}
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		if prefix, ok := constantOf(sum.X, info); ok {
			return prefix + "x", true
		}
	}
	return "", false
}

// droppedCondition says which condition a constant is the type of that the cache drops of pods or nodes, "" for others.
func droppedCondition(e ast.Expr, info *types.Info) string {
	value := info.Types[e]
	if value.Value == nil {
		return ""
	}
	switch kind, of := coreKind(value.Type), constant.StringVal; kind {
	case "PodConditionType":
		pod := &corev1.Pod{}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodConditionType(of(value.Value))}}
		if len(cached(pod).(*corev1.Pod).Status.Conditions) == 0 {
			return fmt.Sprintf("condition %s of a Pod", of(value.Value))
		}
	case "NodeConditionType":
		node := &corev1.Node{}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeConditionType(of(value.Value))}}
		if len(cached(node).(*corev1.Node).Status.Conditions) == 0 {
			return fmt.Sprintf("condition %s of a Node", of(value.Value))
		}
	}
	return ""
}

// planted reads much that the cache has, and what it drops in the lines with a comment.
const planted = `package planted

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

const prefix = "example.org/"

func reads(pod *corev1.Pod, claim corev1.PersistentVolumeClaim, node *corev1.Node, key string) bool {
	pod.Labels["example.org/made"] = "here"
	return pod.Labels["kubevirt.io"] == "" ||
		pod.Labels["app"] == "" || // label "app" of a Pod
		pod.ObjectMeta.Annotations["example.org/a"] == "" || // annotation "example.org/a" of a Pod
		claim.Annotations["upload.virtkit.io/state"] == "" ||
		claim.Labels["upload.virtkit.io/state"] == "" || // label "upload.virtkit.io/state" of a PersistentVolumeClaim
		node.GetLabels()["kubevirt.io/schedulable"] == "" ||
		node.GetLabels()[prefix+key] == "" || // label "example.org/x" of a Node
		node.Labels["host-model-required-features.node.kubevirt.io/"+key] == "" ||
		node.Annotations[key] == "" ||
		conditions.Find(pod.Status.Conditions, corev1.PodScheduled) == nil ||
		conditions.Find(pod.Status.Conditions, corev1.PodReady) == nil || // condition Ready of a Pod
		node.Status.Conditions[0].Type == corev1.NodeReady ||
		node.Status.Conditions[0].Type == corev1.NodeMemoryPressure || // condition MemoryPressure of a Node
		pod.Spec.NodeName == "" ||
		pod.Spec.ServiceAccountName == "" // PodSpec.ServiceAccountName
}
`

// TestStrippedSees has a reconciler with one of each mistake.
func TestStrippedSees(t *testing.T) {
	program := gotypes.Load(t, "../..", "./pkg/controller/...")
	file, info := program.Planted(t, planted)
	var got, want []string
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			for _, read := range readsOf(f, info, allDropped(t)) {
				got = append(got, fmt.Sprintf("%d: %s", program.Position(read.pos).Line, read.field))
			}
		}
	}
	line := 0
	for text := range strings.Lines(planted) {
		line++
		if _, mistake, found := strings.Cut(text, " // "); found {
			want = append(want, fmt.Sprintf("%d: %s", line, strings.TrimSpace(mistake)))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
