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
	"text/template"

	"sigs.k8s.io/yaml"

	"jettison/internal/node/config"
)

// alerts are the alerts of the file, in its order.
var alerts = []string{
	"JettisonDown", "JettisonEvictionStorm", "JettisonBreakerOpen", "JettisonIneffective", "JettisonBlind", "JettisonOOMBeforeEviction",
	"JettisonHeadroomTooSmall", "JettisonSlow", "JettisonConfigRefused", "JettisonGateLost", "JettisonPrioritiesUnknown", "JettisonClientSilent",
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

// rules returns the alerts of a rule file.
func rules(t *testing.T, path string) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, path)), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 {
		t.Fatalf("%s has %d groups, want one", path, len(file.Groups))
	}
	return file.Groups[0].Rules
}

// runbookURL is the address of the runbook in the rules, until an operator replaces it.
const runbookURL = "https://jettison.example/docs/operate/runbook.md"

// ruleFiles are the files with alerts, and testFiles their tests with promtool.
var (
	ruleFiles = []string{"alerts.yaml", "alerts-bare.yaml"}
	testFiles = []string{"alerts_test.yaml", "alerts_bare_test.yaml", "alerts_day_test.yaml"}
)

// Each alert has a severity and the absolute address of its section of the runbook, which exists.
func TestAlertsHaveTheirSection(t *testing.T) {
	runbook := read(t, "../../docs/operate/runbook.md")
	for file, want := range map[string][]string{"alerts.yaml": alerts, "alerts-bare.yaml": {"JettisonDown"}} {
		var names []string
		for _, r := range rules(t, file) {
			names = append(names, r.Alert)
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
				t.Errorf("%s: alert %s lacks a severity or a summary: %+v", file, r.Alert, r)
			}
			if got, want := r.Annotations["runbook_url"], runbookURL+"#"+strings.ToLower(r.Alert); got != want {
				t.Errorf("%s: alert %s: runbook_url = %q, want %q", file, r.Alert, got, want)
			}
			if !strings.Contains(runbook, "\n### "+r.Alert+"\n") {
				t.Errorf("the runbook has no section for %s", r.Alert)
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("alerts of %s = %v, want %v", file, names, want)
		}
	}
}

// runbookCommand matches the command of the runbook that sets the address of the runbook.
var runbookCommand = regexp.MustCompile(`(?m)^    (sed -i .*)$`)

// The command of the runbook replaces the address in every rule.
func TestRunbookAddressIsConfigurable(t *testing.T) {
	found := runbookCommand.FindStringSubmatch(read(t, "../../docs/operate/runbook.md"))
	if found == nil {
		t.Fatal("the runbook has no command that replaces its address in the rules")
	}
	dir := t.TempDir()
	for _, file := range ruleFiles {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(read(t, file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const address = "https://wiki.example.org/on-call/jettison"
	cmd := exec.Command("sh", "-c", found[1])
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "RUNBOOK="+address)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run the command of the runbook %q: %v\n%s", found[1], err, out)
	}
	for _, file := range ruleFiles {
		for _, r := range rules(t, filepath.Join(dir, file)) {
			if got, want := r.Annotations["runbook_url"], address+"#"+strings.ToLower(r.Alert); got != want {
				t.Errorf("%s: alert %s: runbook_url after the command = %q, want %q", file, r.Alert, got, want)
			}
		}
	}
}

// Summaries read well with and without the name of a node, which absent() and targets without the label node lack.
func TestSummariesReadWell(t *testing.T) {
	humanize := func(float64) string { return "230Mi" }
	for _, file := range ruleFiles {
		for _, r := range rules(t, file) {
			text := "{{ $labels := .Labels }}{{ $value := .Value }}" + r.Annotations["summary"]
			summary, err := template.New(r.Alert).Funcs(template.FuncMap{"humanize1024": humanize}).Parse(text)
			if err != nil {
				t.Fatalf("%s: parse the summary of %s: %v", file, r.Alert, err)
			}
			for _, node := range []string{"", "worker-1"} {
				var out strings.Builder
				labels := map[string]string{"node": node, "outcome": "undying", "eviction_signal": "memory.available"}
				if err := summary.Execute(&out, map[string]any{"Labels": labels, "Value": 3.0}); err != nil {
					t.Fatalf("%s: execute the template of the summary of %s: %v", file, r.Alert, err)
				}
				got := out.String()
				if strings.Contains(got, "  ") || strings.TrimSpace(got) != got || strings.Contains(got, " :") ||
					strings.Contains(got, "worker-1") != (node != "") {
					t.Errorf("%s: summary of %s with the node %q = %q", file, r.Alert, node, got)
				}
			}
		}
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
	for _, file := range slices.Concat(ruleFiles, testFiles, []string{"dashboard.json"}) {
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
	for _, args := range [][]string{append([]string{"check", "rules"}, ruleFiles...), append([]string{"test", "rules"}, testFiles...)} {
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
	tests := ""
	for _, file := range testFiles {
		tests += read(t, file)
	}
	for _, name := range alerts {
		if !strings.Contains(tests, "alertname: "+name) {
			t.Errorf("alert %s has no test", name)
		}
	}
}
