package foreign

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxDepth and maxNodes bound a descriptor: none that a hypervisor writes comes near them.
	maxDepth = 64
	maxNodes = 1 << 16
)

// node is an element of a descriptor. Names of elements and attributes are without their namespaces.
type node struct {
	name     string
	attrs    map[string]string
	text     string
	children []*node
	buffer   []byte
}

// parseTree reads XML from a stranger. It has no document type, so no entity of its own, and it is neither deep nor of
// many elements.
func parseTree(text []byte) (*node, error) {
	decoder := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	var root *node
	var open []*node
	for count := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is no XML that is taken: %w", err)
		}
		switch t := token.(type) {
		case xml.Directive:
			return nil, errors.New("the XML has a document type or entities, which are not taken; remove <!...>")
		case xml.StartElement:
			if count++; count > maxNodes || len(open) >= maxDepth {
				return nil, fmt.Errorf("the XML has more than %d elements, or more than %d in each other", maxNodes,
					maxDepth)
			}
			n := newNode(t)
			switch {
			case len(open) > 0:
				parent := open[len(open)-1]
				parent.children = append(parent.children, n)
			case root != nil:
				return nil, errors.New("the XML has more than one root")
			default:
				root = n
			}
			open = append(open, n)
		case xml.EndElement:
			last := open[len(open)-1]
			last.text, last.buffer = strings.TrimSpace(string(last.buffer)), nil
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				last := open[len(open)-1]
				last.buffer = append(last.buffer, t...)
			}
		}
	}
	if root == nil {
		return nil, errors.New("the XML is empty")
	}
	return root, nil
}

func newNode(t xml.StartElement) *node {
	n := &node{name: t.Name.Local, attrs: map[string]string{}}
	for _, attr := range t.Attr {
		if attr.Name.Space == "xmlns" || attr.Name.Local == "xmlns" {
			continue
		}
		if _, has := n.attrs[attr.Name.Local]; !has {
			n.attrs[attr.Name.Local] = attr.Value
		}
	}
	return n
}

// child returns the first child of that name, which is empty when there is none.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return &node{}
}

// all returns the children of that name.
func (n *node) all(name string) []*node {
	var out []*node
	for _, c := range n.children {
		if c.name == name {
			out = append(out, c)
		}
	}
	return out
}

// has reports whether there is a child of that name.
func (n *node) has(name string) bool { return n.child(name).name != "" }

// value returns the text of the first child of one of the names that has any.
func (n *node) value(names ...string) string {
	for _, name := range names {
		if text := n.child(name).text; text != "" {
			return text
		}
	}
	return ""
}
