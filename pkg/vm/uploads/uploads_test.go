package uploads

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const id = "0123456789abcdef"

func TestRequest(t *testing.T) {
	good := Request{
		ID: id, Size: 1, Format: "qcow2",
		Labels: map[string]string{LabelInstancetype: "u1.small", LabelPreferenceKind: "VirtualMachinePreference"},
	}
	for name, test := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"good":         {func(*Request) {}, ""},
		"cancelled":    {func(r *Request) { *r = Request{ID: id, Cancel: true} }, ""},
		"no id":        {func(r *Request) { r.ID = "" }, "id:"},
		"id of text":   {func(r *Request) { r.ID = "0123456789abcdeg" }, "id:"},
		"long id":      {func(r *Request) { r.ID = strings.Repeat("a", 65) }, "id:"},
		"no size":      {func(r *Request) { r.Size = 0 }, "size:"},
		"any size":     {func(r *Request) { r.Size = 1 << 62 }, "size:"},
		"format":       {func(r *Request) { r.Format = "vdi" }, "format:"},
		"other label":  {func(r *Request) { r.Labels = map[string]string{"app": "x"} }, "labels:"},
		"label's text": {func(r *Request) { r.Labels = map[string]string{LabelPreference: "a b"} }, "labels:"},
		"container disk": {
			func(r *Request) {
				r.Size, r.ContainerDisk = 0, &ContainerDisk{Image: "a.b/c:1@sha256:" + strings.Repeat("0", 64)}
			}, "",
		},
		"container disk with bytes": {
			func(r *Request) { r.ContainerDisk = &ContainerDisk{Image: "a"} }, "size: ",
		},
		"container disk, an option": {
			func(r *Request) { r.Size, r.ContainerDisk = 0, &ContainerDisk{Image: "--privileged"} },
			"containerDisk.image: ",
		},
		"container disk, no image": {
			func(r *Request) { r.Size, r.ContainerDisk = 0, &ContainerDisk{} }, "containerDisk.image: ",
		},
		"container disk with an upper-case name": {
			func(r *Request) { r.Size, r.ContainerDisk = 0, &ContainerDisk{Image: "a.b/UPPER:1"} },
			"containerDisk.image: ",
		},
		"container disk with a short digest": {
			func(r *Request) { r.Size, r.ContainerDisk = 0, &ContainerDisk{Image: "a.b/c:1@sha256:abc"} },
			"containerDisk.image: ",
		},
		"container disk, a path out of it": {
			func(r *Request) { r.Size, r.ContainerDisk = 0, &ContainerDisk{Image: "a", Path: "/../etc"} },
			"containerDisk.path: ",
		},
		"container disk, a secret that is none": {
			func(r *Request) { r.Size, r.ContainerDisk = 0, &ContainerDisk{Image: "a", PullSecret: "A b"} },
			"containerDisk.pullSecret: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			test.change(&r)
			err := r.Check()
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
			got := RequestOf(map[string]string{AnnotationRequest: Encode(r)})
			if (got != nil) != (test.want == "") {
				t.Errorf("read as %+v", got)
			}
		})
	}
	if RequestOf(nil) != nil || RequestOf(map[string]string{AnnotationRequest: "{"}) != nil {
		t.Error("a request that is none")
	}
}

func TestUnusable(t *testing.T) {
	state := func(s State) map[string]string { return map[string]string{AnnotationState: Encode(s)} }
	for name, test := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"no upload": {nil, ""},
		"under way": {
			map[string]string{AnnotationRequest: Encode(Request{ID: id, Size: 1})}, "is being uploaded",
		},
		"done":                  {state(State{Phase: Succeeded}), ""},
		"failed":                {state(State{Phase: Failed}), "incomplete"},
		"cancelled":             {state(State{Phase: Cancelled}), "incomplete"},
		"failed at the start":   {state(State{Phase: Failed, Intact: true}), ""},
		"what nobody has said":  {map[string]string{AnnotationState: "?"}, ""},
		"a state of no meaning": {state(State{Phase: "Odd"}), ""},
	} {
		got := Unusable("c", test.annotations)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestOfNamespace(t *testing.T) {
	for kind, want := range map[string]bool{
		"": false, "VirtualMachineClusterInstancetype": false, "virtualmachineclusterpreferences": false,
		"VirtualMachineInstancetype": true, "virtualmachinepreference": true,
	} {
		if got := OfNamespace(kind); got != want {
			t.Errorf("%q: %t", kind, got)
		}
	}
}

// TestAwaiting: a claim that waits for an upload can be told that it waits no more, one that has an image, or a part of
// one, not.
func TestAwaiting(t *testing.T) {
	state := func(s State) map[string]string {
		return map[string]string{AnnotationMade: MadeFor, AnnotationState: Encode(s), "note": "mine"}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"no upload":     {map[string]string{"note": "mine"}, nil},
		"made":          {map[string]string{AnnotationMade: MadeFor, "note": "mine"}, []string{AnnotationMade}},
		"made to pull":  {map[string]string{AnnotationImage: "debian/13"}, []string{AnnotationImage}},
		"never begun":   {state(State{Phase: Failed, Intact: true}), []string{AnnotationState, AnnotationMade}},
		"no state":      {map[string]string{AnnotationState: "?"}, []string{AnnotationState}},
		"failed":        {state(State{Phase: Failed}), nil},
		"cancelled":     {state(State{Phase: Cancelled}), nil},
		"has the image": {state(State{Phase: Succeeded}), nil},
		"under way": {
			map[string]string{AnnotationMade: MadeFor, AnnotationRequest: Encode(Request{ID: id, Size: 1})}, nil,
		},
	} {
		got := Awaiting(test.annotations)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		after := maps.Clone(test.annotations)
		for _, key := range got {
			delete(after, key)
		}
		if len(got) > 0 && AskedFor(after) {
			t.Errorf("%s: an upload is still asked for: %v", name, after)
		}
	}
}

// FuzzState feeds annotations and termination messages: a state that is taken has short texts, of one line.
func FuzzState(f *testing.F) {
	f.Add(Encode(State{
		ID: id, Phase: Failed, Message: "why\nnot", Received: 1, Size: 2, SHA256: strings.Repeat("0", 64),
	}))
	f.Add(Encode(Request{ID: id, Size: 1}))
	f.Fuzz(func(t *testing.T, text string) {
		RequestOf(map[string]string{AnnotationRequest: text})
		s := ParseState([]byte(text))
		if s == nil {
			return
		}
		if strings.ContainsAny(s.Message, "\n\r\x1b\x00") || len(s.Message) > MaxMessage || s.Received > s.Size {
			t.Errorf("%+v", s)
		}
		if again := ParseState([]byte(Encode(s))); again == nil {
			t.Errorf("%+v is not read again", s)
		}
	})
}

// TestCopied has what a claim says of uploads whose content is a copy of that of another.
func TestCopied(t *testing.T) {
	request := Encode(Request{ID: id, Size: 5})
	failed := Encode(State{Phase: Failed, ID: id})
	succeeded := Encode(State{Phase: Succeeded, ID: id})
	for name, test := range map[string]struct {
		of, want map[string]string
		usable   bool
	}{
		"of none": {map[string]string{"mine": "x"}, map[string]string{"mine": "x"}, true},
		"of one to come": {
			map[string]string{AnnotationMade: MadeFor, AnnotationImage: "debian/13", "mine": "x"},
			map[string]string{"mine": "x"},
			true,
		},
		"of one under way": {
			map[string]string{AnnotationMade: MadeFor, AnnotationRequest: request},
			map[string]string{AnnotationMade: MadeFor, AnnotationState: Encode(State{
				ID: id, Phase: Failed, Size: 5, Message: "the content was copied while the image was being uploaded",
			})},
			false,
		},
		"of one under way, whose pod takes bytes": {
			map[string]string{
				AnnotationRequest: request, AnnotationState: Encode(State{Phase: Receiving, Size: 5, Received: 1}),
			},
			map[string]string{AnnotationState: Encode(State{
				ID: id, Phase: Failed, Size: 5, Message: "the content was copied while the image was being uploaded",
			})},
			false,
		},
		"of an invalid request": {map[string]string{AnnotationRequest: "{"}, map[string]string{}, true},
		"of an invalid request after one that failed": {
			map[string]string{AnnotationRequest: "{", AnnotationState: failed},
			map[string]string{AnnotationState: failed},
			false,
		},
		"of one that failed": {
			map[string]string{AnnotationState: failed}, map[string]string{AnnotationState: failed}, false,
		},
		"of an image": {
			map[string]string{AnnotationState: succeeded}, map[string]string{AnnotationState: succeeded}, true,
		},
	} {
		got := maps.Clone(test.of)
		Copied(got)
		if !maps.Equal(got, test.want) || (Unusable("c", got) == "") != test.usable {
			t.Errorf("%s: %v, %q", name, got, Unusable("c", got))
		}
	}
}
