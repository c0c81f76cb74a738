package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/vm"
)

// monitored are the programs that Prometheus scrapes, by job. Those of a node have its name as label.
var monitored = map[string]struct {
	ofNode bool
	metric string // proves that the scrape is the program's
}{
	"jettison":               {true, "jettison_build_info"},
	"jettison-bridge":        {true, "jettison_bridge_build_info"},
	"jettison-cluster-nodes": {false, "jettison_cluster_leader"},
	"jettison-descheduler":   {false, "descheduler_build_info"},
}

// Prometheus scrapes agent, bridge and both programs of jettison-cluster, with the configuration of
// the runbook and Debian's package. It loads the alert rules and, after an eviction, evaluates the
// dashboards' expressions. Without the Secret the agent does not start, and an event has the reason. After a
// renewal of the Secret the running agent uses the new certificate and token.
//
// The cluster has no controller that enforces NetworkPolicies, so that the label jettison/scrape is
// not tested.
func TestPrometheusScrapesAll(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{MiB: 2048})
	c.importProgram(n, "jettison-bridge")
	c.importProgram(n, "jettison-cluster")
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", scrapedOverlay(t)); err != nil {
		t.Fatalf("apply the manifests of all programs: %v\n%s", err, out)
	}
	c.Eventually(workloadDeadline, "an event names the missing Secret", func(ctx context.Context) error {
		return c.hasEvent(ctx, "kube-system", "FailedMount", `secret "jettison-scrape" not found`)
	})
	first := c.newScrapeSecret()
	if _, err := c.Client.CoreV1().Secrets("kube-system").Create(t.Context(), first, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.DaemonSetReady("kube-system", "jettison")
	c.DaemonSetReady("jettison-system", "jettison-bridge")
	c.deploymentReady("jettison-cluster", "jettison-cluster-nodes")
	c.deploymentReady("kube-system", "jettison-descheduler")

	p := &prometheus{c: c, n: n}
	p.start(first)
	p.scrapesAll()
	p.loadsRules()
	c.Deploy("leaker", 1, "alloc -rate 60Mi -size 4Gi")
	c.Eventually(workloadDeadline, "two scrapes have an eviction that the bridge has written", func(ctx context.Context) error {
		for _, expr := range []string{
			`count_over_time(jettison_evictions_total{dry_run="false"}[1m]) >= 2`,
			`count_over_time(jettison_bridge_requests_total{resource="pods/status", result="ok"}[1m]) >= 2`,
		} {
			if out, err := p.query(ctx, expr); err != nil || len(out) == 0 {
				return errors.Join(err, fmt.Errorf("series of %s = %v, want at least one", expr, out))
			}
		}
		return nil
	})
	for _, file := range []string{"fleet.json", "node.json"} {
		p.evaluates(file)
	}

	second := c.newScrapeSecret()
	p.credentials(second)
	c.Eventually(workloadDeadline, "the agent rejects the credentials of the next Secret", func(ctx context.Context) error {
		targets, err := p.targets(ctx)
		if err == nil && !slices.ContainsFunc(targets, func(a target) bool { return a.Labels["job"] == "jettison" && a.Health == "down" }) {
			err = fmt.Errorf("targets are %+v", targets)
		}
		return err
	})
	if _, err := c.Client.CoreV1().Secrets("kube-system").Update(t.Context(), second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.scrapesAll()
	if agent := agentPod(t, c); restarts(agent) != 0 {
		t.Errorf("restarts of the agent = %d after the Secret was renewed, want 0", restarts(agent))
	}
}

// scrapedOverlay writes an overlay with all programs and the components that serve metrics. The
// programs of the cluster have one replica each.
func scrapedOverlay(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	deploy := filepath.Join(moduleRoot(t), "deploy")
	config, err := os.ReadFile(filepath.Join(deploy, "components/scrape/config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(folder, deploy)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"config.yaml": string(config) + "socketGroup: \"64113\"\n",
		"kustomization.yaml": strings.ReplaceAll(`resources: [DEPLOY/overlays/bridge, DEPLOY/cluster, DEPLOY/cluster/descheduler/deployment]
components: [DEPLOY/components/scrape, DEPLOY/components/bridge-scrape]
configMapGenerator: [{name: jettison, namespace: kube-system, behavior: merge, files: [config.yaml]}]
replicas: [{name: jettison-cluster-nodes, count: 1}, {name: jettison-descheduler, count: 1}]
`, "DEPLOY", base),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// newScrapeSecret returns the agents' Secret with a certificate of a new authority and a new token.
func (c *Cluster) newScrapeSecret() *v1.Secret {
	c.t.Helper()
	authority, err := newAuthority()
	if err != nil {
		c.t.Fatal(err)
	}
	serving, err := authority.server("jettison")
	if err != nil {
		c.t.Fatal(err)
	}
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "jettison-scrape"},
		Data: map[string][]byte{
			"tls.crt": serving.cert, "tls.key": serving.key, "ca.crt": authority.pair.cert,
			"token": fmt.Appendf(nil, "scrape-%d\n", time.Now().UnixNano()),
		},
	}
}

// hasEvent returns nil if a namespace has an event with this reason and text.
func (c *Cluster) hasEvent(ctx context.Context, namespace, reason, text string) error {
	list, err := c.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return err
	}
	var seen []string
	for _, e := range list.Items {
		if strings.Contains(e.Message, text) {
			return nil
		}
		seen = append(seen, e.Message)
	}
	return fmt.Errorf("events %s = %q", reason, seen)
}

// deploymentReady waits until a Deployment has all its replicas.
func (c *Cluster) deploymentReady(namespace, name string) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("Deployment %s/%s is ready", namespace, name), func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (d.Status.ReadyReplicas == 0 || d.Status.ReadyReplicas < *d.Spec.Replicas) {
			err = fmt.Errorf("Deployment's status is %+v", d.Status)
		}
		return err
	})
}

// prometheus is Debian's Prometheus on a node.
type prometheus struct {
	c *Cluster
	n *Node
}

// runbookScrapes matches the scrape configuration for a cluster in the runbook, and podDiscovery its
// Kubernetes service discovery, which Debian's package is built without. The test discovers the pods
// instead and gives Prometheus a file with the same labels.
var (
	runbookScrapes = regexp.MustCompile("(?s)```yaml\n(scrape_configs:\n  - job_name: jettison\n    scheme: https.*?)```")
	podDiscovery   = regexp.MustCompile(`    kubernetes_sd_configs:\n(?:      .*\n)+`)
)

// start runs Prometheus with the runbook's configuration and the alert rules.
func (p *prometheus) start(secret *v1.Secret) {
	p.c.t.Helper()
	t, root := p.c.t, moduleRoot(p.c.t)
	runbook, err := os.ReadFile(filepath.Join(root, "docs/operate/runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(root, "deploy/monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := runbookScrapes.FindSubmatch(runbook)
	if found == nil {
		t.Fatal("the runbook has no scrape configuration for a cluster")
	}
	discoveries := podDiscovery.FindAllString(string(found[1]), -1)
	config := "global: {scrape_interval: 5s, evaluation_interval: 5s}\nrule_files: [alerts.yaml]\n" +
		podDiscovery.ReplaceAllStringFunc(string(found[1]), func(discovery string) string {
			return fmt.Sprintf("    file_sd_configs: [{files: [pods-%d.json], refresh_interval: 5s}]\n", slices.Index(discoveries, discovery))
		})
	files := map[string][]byte{"prometheus.yaml": []byte(config), "alerts.yaml": rules}
	for i, discovery := range discoveries {
		namespace := ""
		if strings.Contains(discovery, "namespaces: {names: [kube-system]}") {
			namespace = "kube-system"
		}
		files[fmt.Sprintf("pods-%d.json", i)] = p.discover(namespace)
	}
	for name, text := range files {
		if err := p.n.WriteFile(t.Context(), vm.PrometheusFolder+name, text); err != nil {
			t.Fatal(err)
		}
	}
	p.credentials(secret)
	t.Logf("configuration of Prometheus:\n%s", config)
	if err := p.n.StartPrometheus(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("log of Prometheus:\n" + p.n.PrometheusLog())
		}
	})
}

// credentials gives Prometheus the authority and the token of a Secret. Prometheus reads both again.
func (p *prometheus) credentials(secret *v1.Secret) {
	p.c.t.Helper()
	for name, text := range map[string][]byte{"tls.crt": secret.Data["ca.crt"], "token": bytes.TrimSpace(secret.Data["token"])} {
		if err := p.n.WriteFile(p.c.t.Context(), vm.PrometheusFolder+"jettison/"+name, text); err != nil {
			p.c.t.Fatal(err)
		}
	}
}

// notInLabels are the characters that service discovery replaces in names of labels.
var notInLabels = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// discover returns the pods as file_sd_configs reads them: a target for each port of a container, with
// the labels of role pod of kubernetes_sd_configs (discovery/kubernetes/pod.go, v2.42.0).
func (p *prometheus) discover(namespace string) []byte {
	p.c.t.Helper()
	list, err := p.c.Client.CoreV1().Pods(namespace).List(p.c.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.c.t.Fatal(err)
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, pod := range list.Items {
		labels := map[string]string{
			"namespace": pod.Namespace, "pod_name": pod.Name, "pod_ip": pod.Status.PodIP, "pod_node_name": pod.Spec.NodeName,
			"pod_uid": string(pod.UID), "pod_phase": string(pod.Status.Phase),
		}
		for key, value := range pod.Labels {
			labels["pod_label_"+notInLabels.ReplaceAllString(key, "_")] = value
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				g := group{[]string{net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port.ContainerPort))}, map[string]string{
					"__meta_kubernetes_pod_container_name": container.Name, "__meta_kubernetes_pod_container_port_name": port.Name,
					"__meta_kubernetes_pod_container_port_number":   fmt.Sprint(port.ContainerPort),
					"__meta_kubernetes_pod_container_port_protocol": string(port.Protocol),
				}}
				for key, value := range labels {
					g.Labels["__meta_kubernetes_"+key] = value
				}
				groups = append(groups, g)
			}
		}
	}
	text, err := json.Marshal(groups)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return text
}

// series are the results of a query.
type series []struct {
	Metric map[string]string
	Value  [2]any // time and value
}

// query evaluates an expression.
func (p *prometheus) query(ctx context.Context, expr string) (series, error) {
	var data struct{ Result series }
	err := p.n.AskPrometheus(ctx, "/query?query="+url.QueryEscape(expr), &data)
	if err != nil {
		return nil, fmt.Errorf("evaluate %s: %w", expr, err)
	}
	return data.Result, nil
}

// target is what Prometheus knows of a target.
type target struct {
	Labels            map[string]string
	Health, LastError string
}

func (p *prometheus) targets(ctx context.Context) ([]target, error) {
	var data struct{ ActiveTargets []target }
	err := p.n.AskPrometheus(ctx, "/targets?state=active", &data)
	return data.ActiveTargets, err
}

// scrapesAll waits until all targets are up, one for each program, with the labels that the rules
// need.
func (p *prometheus) scrapesAll() {
	p.c.t.Helper()
	began := time.Now()
	p.c.Eventually(workloadDeadline, "Prometheus scrapes all programs", func(ctx context.Context) error {
		targets, err := p.targets(ctx)
		jobs := map[string]int{}
		for _, a := range targets {
			job := a.Labels["job"]
			jobs[job]++
			if a.Health != "up" {
				err = errors.Join(err, fmt.Errorf("target of %s is %s: %s", job, a.Health, a.LastError))
			}
			if node := a.Labels["node"]; (node == p.n.Name) != monitored[job].ofNode {
				err = errors.Join(err, fmt.Errorf("label node of %s = %q", job, node))
			}
		}
		for job := range monitored {
			if jobs[job] != 1 {
				err = errors.Join(err, fmt.Errorf("targets by job = %v, want one of %s", jobs, job))
			}
		}
		if len(jobs) != len(monitored) {
			err = errors.Join(err, fmt.Errorf("jobs = %v, want %v", jobs, slices.Sorted(maps.Keys(monitored))))
		}
		return err
	})
	for job, m := range monitored {
		p.c.Eventually(workloadDeadline, m.metric+" is scraped", func(ctx context.Context) error {
			out, err := p.query(ctx, fmt.Sprintf("%s{job=%q}", m.metric, job))
			if err == nil && len(out) != 1 {
				err = fmt.Errorf("series of %s = %v, want one", m.metric, out)
			}
			return err
		})
	}
	p.c.t.Logf("all targets are up after %.1f s", time.Since(began).Seconds())
}

// loadsRules waits until Prometheus has evaluated all alert rules, each without an error.
func (p *prometheus) loadsRules() {
	p.c.t.Helper()
	p.c.Eventually(workloadDeadline, "Prometheus has evaluated the alert rules", func(ctx context.Context) error {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.n.AskPrometheus(ctx, "/rules", &data); err != nil {
			return err
		}
		var err error
		names := map[string]bool{}
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				names[r.Name] = true
				if r.Health != "ok" {
					err = errors.Join(err, fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError))
				}
			}
		}
		for _, name := range []string{"JettisonDown", "JettisonBridgeRequestsFailing", "JettisonClusterWithoutLeader"} {
			if !names[name] {
				err = errors.Join(err, fmt.Errorf("rules = %v, want %s among them", slices.Sorted(maps.Keys(names)), name))
			}
		}
		return err
	})
}

// evaluates evaluates all expressions of a dashboard for the node, after an eviction. None may fail,
// and most must give data: the others need alerts, garbage or failed nodes.
func (p *prometheus) evaluates(file string) {
	p.c.t.Helper()
	t := p.c.t
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "deploy/monitoring", file))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	all, full := 0, 0
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			out, err := p.query(t.Context(), strings.ReplaceAll(target.Expr, "$node", p.n.Name))
			if err != nil {
				t.Errorf("query of panel %q of %s: %v", panel.Title, file, err)
				continue
			}
			if all++; len(out) > 0 {
				full++
				t.Logf("%s: %s: %d series, the first %v %v", file, panel.Title, len(out), out[0].Metric, out[0].Value[1])
			}
		}
	}
	if 3*full < 2*all {
		t.Errorf("%s: %d of %d expressions give data, want at least two thirds", file, full, all)
	}
}
