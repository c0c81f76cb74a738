package monitoring

import (
	"encoding/json"
	"fmt"
	"maps"
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
	"JettisonHung", "JettisonDryRun", "JettisonRuntimeLost", "JettisonBridgeRequestsFailing", "JettisonClusterWithoutLeader",
	"JettisonClusterHeld", "JettisonClusterWritesFailing",
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
				labels := map[string]string{
					"node": node, "outcome": "undying", "eviction_signal": "memory.available", "resource": "events", "result": "denied", "what": "evict",
				}
				if err := summary.Execute(&out, map[string]any{"Labels": labels, "Value": 3.0}); err != nil {
					t.Fatalf("%s: execute the template of the summary of %s: %v", file, r.Alert, err)
				}
				got := out.String()
				ofNode := strings.Contains(r.Annotations["summary"], ".node") // otherwise it is an alert of the cluster
				if strings.Contains(got, "  ") || strings.TrimSpace(got) != got || strings.Contains(got, " :") ||
					strings.Contains(got, "worker-1") != (node != "" && ofNode) {
					t.Errorf("%s: summary of %s with the node %q = %q", file, r.Alert, node, got)
				}
			}
		}
	}
}

// ownMetric matches names of jettison's metrics.
var ownMetric = regexp.MustCompile(`\bjettison_[a-z_]+\b`)

// The metrics that alerts and dashboards query are on the page of all metrics.
func TestMetricsExist(t *testing.T) {
	known, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(ruleFiles, testFiles, dashboardFiles) {
		for _, name := range ownMetric.FindAllString(read(t, file), -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !strings.Contains(string(known), "`"+name+"`") && !strings.Contains(string(known), "`"+base+"`") {
				t.Errorf("%s queries %s, which docs/reference/metrics.md lacks", file, name)
			}
		}
	}
}

// dashboardFiles are the dashboards: one for all nodes, and one for one node.
var dashboardFiles = []string{"fleet.json", "node.json"}

// dashboard is a dashboard of Grafana.
type dashboard struct {
	UID    string  `json:"uid"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
	Links  []struct {
		URL string `json:"url"`
	} `json:"links"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			IncludeAll bool   `json:"includeAll"`
			Multi      bool   `json:"multi"`
		} `json:"list"`
	} `json:"templating"`
}

// panel is a panel of a dashboard.
type panel struct {
	ID         int            `json:"id"`
	Type       string         `json:"type"`
	Title      string         `json:"title"`
	Datasource map[string]any `json:"datasource"`
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// readDashboard returns a dashboard.
func readDashboard(t *testing.T, file string) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
		t.Fatalf("decode the dashboard %s as JSON: %v", file, err)
	}
	return d
}

// Grafana can import the dashboards: each panel has an id, a separate place, a title, and queries
// the selected source. Each dashboard links to the other one.
func TestDashboards(t *testing.T) {
	for i, file := range dashboardFiles {
		d, other := readDashboard(t, file), readDashboard(t, dashboardFiles[1-i])
		if d.UID == "" || d.Title == "" || d.Templating.List[0].Name != "datasource" || len(d.Links) != 1 || d.Links[0].URL != "/d/"+other.UID {
			t.Errorf("%s: uid %q, title %q, links %v, variables %+v", file, d.UID, d.Title, d.Links, d.Templating.List)
		}
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.ID == 0 || p.Title == "" || p.Datasource["uid"] != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q: duplicate id, or missing title, source or query", file, p.ID, p.Title)
			}
			ids[p.ID] = true
			g := p.GridPos
			if g.W < 1 || g.H < 1 || g.X+g.W > 24 {
				t.Errorf("%s: panel %q has a bad position: %+v", file, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := cells[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: panels %q and %q overlap each other", file, p.Title, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Expressions of the fleet's dashboard aggregate first, or select at most 50 nodes. perNode matches
// a grouping that keeps nodes apart.
var (
	bounded   = regexp.MustCompile(`^(topk|bottomk)\(([1-9]|[1-4][0-9]|50), `)
	aggregate = regexp.MustCompile(`^(sum|count|min|max|histogram_quantile)\b`)
	perNode   = regexp.MustCompile(`\bby \([^)]*\b(node|instance|pod)\b|\bwithout\b`)
)

// No panel has a line for each node: the fleet's dashboard aggregates, and the node's dashboard is
// for exactly one node.
func TestDashboardsHaveNoLineForEachNode(t *testing.T) {
	for _, p := range readDashboard(t, "fleet.json").Panels {
		for _, target := range p.Targets {
			if !bounded.MatchString(target.Expr) && (!aggregate.MatchString(target.Expr) || perNode.MatchString(target.Expr)) {
				t.Errorf("fleet.json: panel %q may have a line for each node: %s", p.Title, target.Expr)
			}
			if strings.Contains(target.Expr, "$") {
				t.Errorf("fleet.json: panel %q depends on a variable: %s", p.Title, target.Expr)
			}
		}
	}
	d := readDashboard(t, "node.json")
	if v := d.Templating.List; len(v) != 2 || v[1].Name != "node" || v[1].IncludeAll || v[1].Multi {
		t.Errorf("node.json: variables = %+v, want one of exactly one node", v)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if selectors := strings.Count(target.Expr, "{"); selectors == 0 || strings.Count(target.Expr, `node="$node"`) != selectors {
				t.Errorf("node.json: panel %q queries all nodes: %s", p.Title, target.Expr)
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
	podDiscovery = regexp.MustCompile(`    kubernetes_sd_configs:\n(?:      .*\n)+`)
)

// selector matches a metric and its selector. ALERTS stands for the alerts.
var selector = regexp.MustCompile(`\b(jettison_[a-z_]+|process_[a-z_]+|up|ALERTS)\b(?:\{([^}]*)\})?`)

// seriesOf returns the series of a node that an expression selects.
func seriesOf(expr, node string) (out []string) {
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		labels := []string{fmt.Sprintf("node=%q, instance=%q", node, node)}
		for _, matcher := range strings.Split(m[2], ", ") {
			switch key, value, _ := strings.Cut(matcher, "="); {
			case key == "" || key == "node":
			case strings.HasPrefix(value, "~"):
				labels = append(labels, key+"="+strings.ReplaceAll(value[1:], ".+", "Test"))
			default:
				labels = append(labels, key+"="+value)
			}
		}
		if strings.HasSuffix(m[1], "_bucket") {
			labels = append(labels, `le="+Inf"`)
		}
		out = append(out, m[1]+"{"+strings.Join(labels, ", ")+"}")
	}
	return out
}

// checkExpressions evaluates the dashboards' expressions for 60 nodes, with Prometheus' engine. Each
// gives data. Those of the fleet give at most 50 lines, and those of a node one.
func checkExpressions(t *testing.T, tool string) {
	t.Helper()
	type testCase = map[string]any
	dir := t.TempDir()
	var recorded, queries []any
	series := map[string]bool{}
	for file, most := range map[string]int{"fleet.json": 50, "node.json": 1} {
		for _, p := range readDashboard(t, file).Panels {
			for i, target := range p.Targets {
				expr := strings.ReplaceAll(target.Expr, "$node", "n1")
				name := fmt.Sprintf("%s:panel_%d_%d", strings.TrimSuffix(file, ".json"), p.ID, i)
				recorded = append(recorded, testCase{"record": name, "expr": expr})
				queries = append(queries, testCase{"expr": fmt.Sprintf("absent(%s) or count(%s) > %d", name, name, most), "eval_time": "1h"})
				for n := range 60 {
					for _, s := range seriesOf(expr, fmt.Sprint("n", n)) {
						series[s] = true
					}
				}
			}
		}
	}
	var input []any
	for _, s := range slices.Sorted(maps.Keys(series)) {
		input = append(input, testCase{"series": s, "values": "1+1x120"})
	}
	for name, content := range map[string]any{
		"rules.yaml": testCase{"groups": []any{testCase{"name": "dashboards", "rules": recorded}}},
		"test.yaml": testCase{"rule_files": []any{"rules.yaml"}, "evaluation_interval": "1m", "tests": []any{
			testCase{"interval": "1m", "input_series": input, "promql_expr_test": queries},
		}},
	} {
		text, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(tool, "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("expressions of the dashboards with 60 nodes: no data, or a line for each node: %v\n%s", err, out)
	}
}

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
	checkExpressions(t, tool)
	found := scrapes.FindAllStringSubmatch(read(t, "../../docs/operate/runbook.md"), -1)
	if len(found) != 2 {
		t.Errorf("the runbook has %d scrape configurations, want one for a node and one for a cluster", len(found))
	}
	for _, text := range found {
		file := filepath.Join(t.TempDir(), "prometheus.yaml")
		if err := os.WriteFile(file, []byte(podDiscovery.ReplaceAllString(text[1], "")), 0o600); err != nil {
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
