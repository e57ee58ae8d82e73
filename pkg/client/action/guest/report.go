package guest

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// ExecResult is what `exec -o json` prints.
type ExecResult struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the machine.
	metav1.ObjectMeta `json:"metadata"`
	// Command is what was run.
	Command []string `json:"command"`
	// ExitCode is the program's; 128 and the signal's number for one that a signal ended.
	ExitCode int `json:"exitCode"`
	// Signal is the number of the signal that ended the program; absent when none did.
	Signal int `json:"signal,omitempty"`
	// Stdout and Stderr are what it wrote, when that is UTF-8; else they are in StdoutBase64 and StderrBase64.
	Stdout       string `json:"stdout"`
	Stderr       string `json:"stderr"`
	StdoutBase64 string `json:"stdoutBase64,omitempty"`
	StderrBase64 string `json:"stderrBase64,omitempty"`
	// Truncated says that the guest's agent has dropped some of the output.
	Truncated bool `json:"truncated,omitempty"`
	// Seconds is how long it took, as seen from here.
	Seconds float64 `json:"seconds"`
}

// DeepCopyObject implements runtime.Object.
func (r *ExecResult) DeepCopyObject() runtime.Object {
	out := *r
	out.ObjectMeta = *r.DeepCopy()
	out.Command = append([]string(nil), r.Command...)
	return &out
}

// NewExecResult returns the report of one program.
func NewExecResult(
	namespace, name string, command []string, result exec.Result, stdout, stderr []byte, took time.Duration,
) *ExecResult {
	r := &ExecResult{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "ExecResult"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Command:    command, ExitCode: ExitCode(result), Signal: result.Signal, Truncated: result.Truncated,
		Seconds: took.Round(time.Millisecond).Seconds(),
	}
	r.Stdout, r.StdoutBase64 = text(stdout)
	r.Stderr, r.StderrBase64 = text(stderr)
	return r
}

func text(data []byte) (plain, encoded string) {
	if utf8.Valid(data) {
		return string(data), ""
	}
	return "", base64.StdEncoding.EncodeToString(data)
}

// ExitCode returns a program's exit code as a shell has it: 128 and the signal's number for one that a signal ended.
func ExitCode(r exec.Result) int {
	if r.Signal != 0 {
		return 128 + r.Signal
	}
	return r.ExitCode
}

// CopyReport is what `cp -o json` prints.
type CopyReport struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the machine.
	metav1.ObjectMeta `json:"metadata"`
	// Direction is push, into the guest, or pull, out of it.
	Direction string `json:"direction"`
	// Files are those that were copied.
	Files []CopiedFile `json:"files"`
	// Seconds is how long it took, as seen from here.
	Seconds float64 `json:"seconds"`
}

// CopiedFile is one file of a CopyReport.
type CopiedFile struct {
	// Source and Target are where it was and where it is; one of them is in the guest. Standard input and output are -.
	Source string `json:"source"`
	Target string `json:"target"`
	// Bytes is how large it is.
	Bytes int64 `json:"bytes"`
	// SHA256 is the checksum of what was copied, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Verified says that the guest has computed the same checksum of its file.
	Verified bool `json:"verified"`
	// Changed says that the guest's file has changed while it was copied from there.
	Changed bool `json:"changed,omitempty"`
	// InPlace says that the guest's file was written under its name, and has the mode that the agent gives.
	InPlace bool `json:"inPlace,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *CopyReport) DeepCopyObject() runtime.Object {
	out := *r
	out.ObjectMeta = *r.DeepCopy()
	out.Files = append([]CopiedFile{}, r.Files...)
	return &out
}

// NewCopyReport returns the report of a copy.
func NewCopyReport(namespace, name, direction string, files []CopiedFile, took time.Duration) *CopyReport {
	return &CopyReport{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "CopyReport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Direction:  direction, Files: append([]CopiedFile{}, files...), Seconds: took.Round(time.Millisecond).Seconds(),
	}
}
