package rfb

import "io"

// Wake moves the pointer beside other clients, as a user would to wake a screen that has gone dark.
func Wake(stream io.ReadWriter) error {
	c, err := Open(stream, true)
	if err != nil {
		return err
	}
	// A mouse that only knows distances takes the first place for where it is.
	for _, at := range []int{0, 1, 0} {
		if err := c.Pointer(at, at, 0); err != nil {
			return err
		}
	}
	return nil
}
