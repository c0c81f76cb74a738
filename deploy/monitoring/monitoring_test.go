package monitoring

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"jettison/internal/node/config"
)

// alerts are the alerts of the file, in its order.
var alerts = []string{
	"JettisonDown", "JettisonEvictionStorm", "JettisonBreakerOpen", "JettisonIneffective", "JettisonBlind", "JettisonOOMBeforeEviction",
	"JettisonSlow", "JettisonConfigRefused", "JettisonGateLost", "JettisonPrioritiesUnknown", "JettisonClientSilent",
	"JettisonHung", "JettisonDryRun", "JettisonRuntimeLost",
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 {
		t.Fatalf("alert file has %d groups, want one", len(file.Groups))
	}
	return file.Groups[0].Rules
}

// Each alert has a severity and a runbook link to an existing section. The runbook has a section
// for each alert.
func TestAlertsHaveTheirSection(t *testing.T) {
	var names []string
	runbook := read(t, "../../docs/operate/runbook.md")
	for _, r := range rules(t) {
		names = append(names, r.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("alert %s lacks a severity, summary or description: %+v", r.Alert, r)
		}
		if got, want := r.Annotations["runbook"], "docs/operate/runbook.md#"+strings.ToLower(r.Alert); got != want {
			t.Errorf("alert %s: runbook = %q, want %q", r.Alert, got, want)
		}
		if !strings.Contains(runbook, "\n### "+r.Alert+"\n") {
			t.Errorf("the runbook has no section for %s", r.Alert)
		}
	}
	if !slices.Equal(names, alerts) {
		t.Errorf("alerts of the file = %v, want %v", names, alerts)
	}
}

// agentMetric matches names of the agent's metrics.
var agentMetric = regexp.MustCompile(`\bjettison_[a-z_]+\b`)

// The metrics that alerts and dashboard query are on the page of all metrics.
func TestMetricsExist(t *testing.T) {
	known, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"alerts.yaml", "alerts_test.yaml", "alerts_day_test.yaml", "dashboard.json"} {
		for _, name := range agentMetric.FindAllString(read(t, file), -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !strings.Contains(string(known), "`"+name+"`") && !strings.Contains(string(known), "`"+base+"`") {
				t.Errorf("%s queries %s, which is no metric of the agent", file, name)
			}
		}
	}
}

// Grafana can import the dashboard: each panel has an id, a separate place, a title, and queries
// the selected source.
func TestDashboard(t *testing.T) {
	var d struct {
		UID    string `json:"uid"`
		Title  string `json:"title"`
		Panels []struct {
			ID         int            `json:"id"`
			Type       string         `json:"type"`
			Title      string         `json:"title"`
			Datasource map[string]any `json:"datasource"`
			GridPos    struct{ X, Y, W, H int }
			Targets    []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name string `json:"name"`
			} `json:"list"`
		} `json:"templating"`
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || len(d.Templating.List) != 2 || d.Templating.List[0].Name != "datasource" || d.Templating.List[1].Name != "node" {
		t.Errorf("dashboard's uid %q, title %q, variables %+v", d.UID, d.Title, d.Templating.List)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" || p.Datasource["uid"] != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: duplicate id, or missing title, source or query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, `node=~"$node"`) {
				t.Errorf("panel %q queries all nodes: %s", p.Title, target.Expr)
			}
		}
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %q has a bad position: %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap each other", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}

// The agent accepts the configuration with which a cluster is scraped.
func TestAgentAcceptsScrapeConfiguration(t *testing.T) {
	c, err := config.Load(t.Context(), "../components/scrape/config.yaml")
	if err != nil || c.Listen == "" || len(c.Warnings) > 0 {
		t.Errorf("load the scraped configuration = %+v, %v", c, err)
	}
}

// scrapes matches the scrape configurations of the runbook, and podDiscovery the part that Debian's
// promtool is built without.
var (
	scrapes      = regexp.MustCompile("(?s)```yaml\n(scrape_configs:.*?)```")
	podDiscovery = "    kubernetes_sd_configs:\n      - role: pod\n        namespaces: {names: [kube-system]}\n"
)

// promtool accepts the rules, and each fires in its case.
func TestPromtool(t *testing.T) {
	tool, err := filepath.Abs("../../bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tool); err != nil {
		if tool, err = exec.LookPath("promtool"); err != nil {
			t.Skip("NOT TESTED: no promtool: run make alerts")
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml", "alerts_day_test.yaml"}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool with arguments %v failed: %v\n%s", args, err, out)
		}
	}
	found := scrapes.FindAllStringSubmatch(read(t, "../../docs/operate/runbook.md"), -1)
	if len(found) != 2 {
		t.Errorf("the runbook has %d scrape configurations, want one for a node and one for a cluster", len(found))
	}
	for _, text := range found {
		file := filepath.Join(t.TempDir(), "prometheus.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text[1], podDiscovery, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(tool, "check", "config", "--syntax-only", file).CombinedOutput(); err != nil {
			t.Errorf("promtool rejects the scrape configuration: %v\n%s\n%s", err, out, text[1])
		}
	}
	tests := read(t, "alerts_test.yaml") + read(t, "alerts_day_test.yaml")
	for _, name := range alerts {
		if !strings.Contains(tests, "alertname: "+name) {
			t.Errorf("alert %s has no test", name)
		}
	}
}
