package vnc

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// ScreenshotReport is what `vnc screenshot -o json` prints.
type ScreenshotReport struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the machine.
	metav1.ObjectMeta `json:"metadata"`
	// File is where the PNG is.
	File string `json:"file"`
	// Width and Height are the picture's, pixels.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Bytes is the file's size.
	Bytes int64 `json:"bytes"`
}

// DeepCopyObject implements runtime.Object.
func (r *ScreenshotReport) DeepCopyObject() runtime.Object {
	out := *r
	out.ObjectMeta = *r.DeepCopy()
	return &out
}

// NewScreenshotReport returns the report of one screenshot.
func NewScreenshotReport(namespace, name, file string, p Picture) *ScreenshotReport {
	return &ScreenshotReport{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "Screenshot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		File:       file, Width: p.Width, Height: p.Height, Bytes: p.Bytes,
	}
}

// SessionReport is what `vnc -o json` prints once a screen can be reached: through a local port or a page.
type SessionReport struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the machine.
	metav1.ObjectMeta `json:"metadata"`
	// Address and Port are where virtctl listens.
	Address string `json:"address"`
	Port    int    `json:"port"`
	// URL is what to open: vnc:// for a viewer, http:// with a token that is good once for --web.
	URL string `json:"url"`
}

// DeepCopyObject implements runtime.Object.
func (r *SessionReport) DeepCopyObject() runtime.Object {
	out := *r
	out.ObjectMeta = *r.DeepCopy()
	return &out
}

// NewSessionReport returns the report of a screen that can be reached at an address.
func NewSessionReport(namespace, name, address string, port int, url string) *SessionReport {
	return &SessionReport{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "VNCSession"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Address:    address, Port: port, URL: url,
	}
}
