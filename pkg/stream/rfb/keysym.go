package rfb

import "strings"

// Keysyms of keys without a character, X11's.
const (
	KeyBackspace   = 0xff08
	KeyTab         = 0xff09
	KeyReturn      = 0xff0d
	KeyPause       = 0xff13
	KeyScrollLock  = 0xff14
	KeyEscape      = 0xff1b
	KeyHome        = 0xff50
	KeyLeft        = 0xff51
	KeyUp          = 0xff52
	KeyRight       = 0xff53
	KeyDown        = 0xff54
	KeyPageUp      = 0xff55
	KeyPageDown    = 0xff56
	KeyEnd         = 0xff57
	KeyPrint       = 0xff61
	KeyInsert      = 0xff63
	KeyMenu        = 0xff67
	KeyNumLock     = 0xff7f
	KeyF1          = 0xffbe
	KeyShift       = 0xffe1
	KeyControl     = 0xffe3
	KeyCapsLock    = 0xffe5
	KeyAlt         = 0xffe9
	KeySuper       = 0xffeb
	KeyDelete      = 0xffff
	unicodeKeysyms = 0x01000000
)

// Keysym returns the keysym of a character.
func Keysym(r rune) uint32 {
	switch {
	case r == '\n' || r == '\r':
		return KeyReturn
	case r == '\t':
		return KeyTab
	case r >= ' ' && r <= '~' || r >= 0xa0 && r <= 0xff:
		return uint32(r)
	}
	return unicodeKeysyms | uint32(r)
}

// NeedsShift reports whether a character is typed with Shift on an American keyboard, which QEMU takes the guest's
// for. A server presses the key of a keysym, and not Shift with it.
func NeedsShift(r rune) bool {
	return r >= 'A' && r <= 'Z' || strings.ContainsRune(`~!@#$%^&*()_+{}|:"<>?`, r)
}
