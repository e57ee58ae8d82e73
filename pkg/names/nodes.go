package names

import "strings"

// HandlerOf returns the common name of the certificate of a node's virt-handler.
func HandlerOf(node string) string { return CommonNameHandler + ":" + node }

// NodeOfHandler returns the node that a common name made by HandlerOf is of; empty for others.
func NodeOfHandler(commonName string) string {
	node, ok := strings.CutPrefix(commonName, CommonNameHandler+":")
	if !ok {
		return ""
	}
	return node
}

// GuestsOf returns the common name of the certificate that a node's virt-handler shows to programs in guests. No
// component takes it.
func GuestsOf(node string) string { return CommonNameGuests + ":" + node }
