package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/bench/report"
)

// scrapes measures what Prometheus costs: one answer of a virt-handler with guests, as Prometheus waits for it.
func scrapes(ctx context.Context, b *bench) (rows []Row, err error) {
	const guests = 6
	const apart = time.Second // as they are with Prometheus, no two share a reading
	nodes, err := b.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	node := nodes.Items[0]
	get, err := b.prometheus(ctx)
	if err != nil {
		return nil, err
	}
	vmis, errs := [guests]*v1.VirtualMachineInstance{}, [guests]error{}
	var all sync.WaitGroup
	for i := range guests {
		vmis[i] = b.vmi(fmt.Sprintf("measured-%d", i))
		vmis[i].Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Labels[corev1.LabelHostname]}
		all.Go(func() {
			if _, errs[i] = b.untilRunning(ctx, vmis[i]); errs[i] != nil {
				return
			}
			conn, err := b.console(ctx, vmis[i], everything)
			if err == nil {
				err = errors.Join(until(conn, "login: "), conn.Close())
			}
			errs[i] = err
		})
	}
	all.Wait()
	defer func() {
		for i := range guests {
			all.Go(func() { _, errs[i] = b.untilGone(ctx, vmis[i]) })
		}
		all.Wait()
		err = errors.Join(append(errs[:], err)...)
	}()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for _, from := range []struct{ component, node, what string }{
		{names.VirtHandler, node.Name, fmt.Sprintf("a scrape of virt-handler, %d guests, median", guests)},
		{names.VirtController, "", "… of a virt-controller, median"},
	} {
		selector := metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + from.component}
		if from.node != "" {
			selector.FieldSelector = "spec.nodeName=" + from.node
		}
		pods, err := b.Kube.CoreV1().Pods(names.Namespace).List(ctx, selector)
		if err != nil {
			return nil, err
		}
		var took []time.Duration
		for range b.rounds {
			for _, pod := range pods.Items {
				start := time.Now()
				if err := get(pod.Status.PodIP); err != nil {
					return nil, fmt.Errorf("scrape %s: %w", pod.Name, err)
				}
				took = append(took, time.Since(start))
			}
			if err := pause(ctx, apart); err != nil {
				return nil, err
			}
		}
		rows = append(rows,
			report.Timed("scrape-"+from.component, from.what, "ms", took, .5).AtMost(100))
	}
	rss, err := b.componentsMemory(ctx, "Rss")
	if err != nil {
		return nil, err
	}
	return append(rows,
		Row{Name: "scrape-rss", What: "all components' RSS afterwards", Unit: "MiB", Value: mebibytes(rss)}), nil
}

// prometheus makes an account that may read metrics, and gives what reads those of a pod.
func (b *bench) prometheus(ctx context.Context) (func(address string) error, error) {
	accounts := b.Kube.CoreV1().ServiceAccounts(b.namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}},
		metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	_, err := b.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: b.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: b.namespace, Name: "prometheus"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	bundle, err := b.Kube.CoreV1().ConfigMaps(names.Namespace).Get(ctx, names.CABundle, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(bundle.Data[names.CABundleKey])) {
		return nil, fmt.Errorf("ConfigMap %s has no certificate", names.CABundle)
	}
	client := &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: names.DNSNameMetrics}},
	}
	return func(address string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"https://"+net.JoinHostPort(address, strconv.Itoa(names.PortMetrics))+"/metrics", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token.Status.Token)
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return scraped(response)
	}, nil
}

// scraped reads an answer to its end; one that says nothing is none.
func scraped(response *http.Response) error {
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && n == 0 {
		err = errors.New("the answer is empty")
	}
	return err
}
