package doctor

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// skew is how far two clocks may be apart: certificates and leases tolerate more, but not logs.
const skew = 5 * time.Second

// client looks at this program, its kubeconfig and the way to the cluster.
func (e *examination) client() {
	p := e.Program
	e.add(Client, "version", OK, fmt.Sprintf("%s %s, %s", p.Name, p.Version.GitVersion, p.Version.Platform))
	switch {
	case p.Path["kubectl"] == "":
		e.add(Client, "kubectl", OK, "kubectl is not in PATH; nothing here needs it")
	case p.Path["kubectl-virt"] == "":
		e.add(Client, "kubectl", Warning,
			"kubectl does not find this program as its plugin: there is no kubectl-virt in PATH",
			// not krew: what its index has by this name is KubeVirt's program
			"ln -s \"$(command -v virtctl)\" /usr/local/bin/kubectl-virt")
	case p.Path["kubectl_complete-virt"] == "":
		e.add(Client, "kubectl", Warning, "`kubectl virt` works, but is not completed: there is no "+
			"kubectl_complete-virt in PATH", "install plugins/kubectl_complete-virt")
	default:
		e.add(Client, "kubectl", OK, "`kubectl virt` works, with completion")
	}
	if !p.CertNotAfter.IsZero() {
		left := p.CertNotAfter.Sub(e.Now)
		switch {
		case left < 0:
			e.add(Client, "credentials", Failed, fmt.Sprintf("the kubeconfig's certificate expired %s ago",
				spell(-left)), "get a new kubeconfig for context "+p.Context)
		case left < 7*24*time.Hour:
			e.add(Client, "credentials", Warning, fmt.Sprintf("the kubeconfig's certificate expires in %s",
				spell(left)), "get a new kubeconfig for context "+p.Context)
		default:
			e.add(Client, "credentials", OK, fmt.Sprintf("the kubeconfig's certificate is good for %s", spell(left)))
		}
	}
	where := fmt.Sprintf("%s (context %s)", p.Server, p.Context)
	if err := e.Server.Err; err != nil {
		fix := "start the cluster, or choose another context; `kubectl config get-contexts` lists them"
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			fix = "log in to the cluster again: the credentials of context " + p.Context + " are not accepted"
		}
		e.add(Client, "connection", Failed, e.unanswered(where, err), fix)
		return
	}
	status, fixes := OK, []string(nil)
	if e.RoundTrip > time.Second {
		status, fixes = Warning, []string{"consoles and ssh will be slow over this network"}
	}
	e.add(Client, "connection", status,
		fmt.Sprintf("%s answers in %s", where, e.RoundTrip.Round(time.Millisecond)), fixes...)
	if e.Behind.Abs() > skew {
		e.add(Client, "clock", Warning, fmt.Sprintf("this machine's clock is %s the cluster's", ahead(e.Behind)),
			"set the clock by NTP on both")
	} else {
		e.add(Client, "clock", OK, "this machine's clock agrees with the cluster's")
	}
}

// unanswered returns the sentence that the cluster at where does not answer; an error that names the server already
// says so itself.
func (e *examination) unanswered(where string, err error) string {
	if said := e.say(err); strings.Contains(said, e.Program.Server) && e.Program.Server != "" {
		return said
	}
	return fmt.Sprintf("%s does not answer: %s", where, e.say(err))
}

func ahead(behind time.Duration) string {
	if behind > 0 {
		return spell(behind) + " ahead of"
	}
	return spell(-behind) + " behind"
}

// spell returns a time span for people: 45s, 12m, 3h, 5d.
func spell(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return d.Round(time.Second).String()
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
