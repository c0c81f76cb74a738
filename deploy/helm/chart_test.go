package helm

import (
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"jettison/internal/node/config"
)

// values parses values as a file of "helm install --values".
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out, err := common.ReadValues([]byte(text))
	if err != nil {
		t.Fatalf("parse the values of the chart %q: %v", text, err)
	}
	return out
}

// tryRender renders the chart. An unknown value in a template is an error.
func tryRender(t *testing.T, text string) (map[string]string, error) {
	t.Helper()
	return renderWith(t, engine.Engine{Strict: true}, text)
}

func renderWith(t *testing.T, e engine.Engine, text string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load("jettison")
	if err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "jettison", Namespace: "kube-system", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values(t, text), release, nil)
	if err != nil {
		return nil, err
	}
	return e.RenderWithContext(t.Context(), chart, all)
}

// render returns the objects of the chart.
func render(t *testing.T, text string) (out []object) {
	t.Helper()
	files, err := tryRender(t, text)
	if err != nil {
		t.Fatalf("render with the values %q: %v", text, err)
	}
	return objectsOf(t, files)
}

// objectsOf returns the objects of rendered files.
func objectsOf(t *testing.T, files map[string]string) (out []object) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" {
			out = append(out, decode(t, files[name])...)
		}
	}
	return out
}

// find returns an object of a list. The name of a ConfigMap lacks its checksum.
func find(t *testing.T, objects []object, name string) object {
	t.Helper()
	for _, o := range objects {
		if id(o) == name || o["kind"] == "ConfigMap" && contentHash.ReplaceAllString(id(o), "") == name {
			return o
		}
	}
	t.Fatalf("the chart does not render %s", name)
	return nil
}

// container returns the only container of a workload.
func container(t *testing.T, workload object) object {
	t.Helper()
	list, ok := at(workload, "spec", "template", "spec", "containers").([]any)
	if !ok || len(list) != 1 {
		t.Fatalf("containers of %s = %v, want one", id(workload), list)
	}
	return list[0].(object)
}

// everything enables all programs and objects.
const everything = `
agent: {leastPrivilege: true, kubeletDefaults: true, config: {maxPods: 7, evictionHard: {memory.available: 5%}}}
bridge: {selinux: true, openshift: true}
nodes: {enabled: true, config: {doubt: false}}
descheduler: {enabled: true, load: true}
metrics: {enabled: true, tlsSecret: jettison-tls}
image: {registry: registry.example, tag: v1, pullSecrets: [pull]}
nodeSelector: {canary: "yes"}
monitoring:
  labels: {release: prometheus}
  podMonitor: {enabled: true, caKey: ca.crt}
  serviceMonitor: {enabled: true}
  prometheusRule: {enabled: true, runbookURL: "https://wiki.example/jettison"}
  dashboards: {enabled: true, labels: {team: node}}
`

// Helm's linter has no complaint. It would like an icon.
func TestLint(t *testing.T) {
	for _, text := range []string{"", everything, "agent: {enabled: false}\nbridge: {enabled: false}", everything + "dryRun: false\n"} {
		result := lint.RunAll("jettison", values(t, text), "kube-system")
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev || m.Err.Error() != "icon is recommended" {
				t.Errorf("helm lint with the values %q: %v", text, m)
			}
		}
	}
}

// The API's types accept all objects; an unknown or duplicate field is an error. No two objects
// have one name.
func TestObjectsAreValid(t *testing.T) {
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	seen := map[string]bool{}
	for _, o := range render(t, everything) {
		if seen[id(o)] {
			t.Errorf("the chart renders the object %s twice", id(o))
		}
		seen[id(o)] = true
		group, _, _ := strings.Cut(o["apiVersion"].(string), "/")
		if group == "monitoring.coreos.com" || group == "security.openshift.io" {
			continue
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var decoded runtime.Object
		if decoded, _, err = codecs.UniversalDeserializer().Decode(text, nil, nil); err != nil {
			t.Errorf("strict decoding of the rendered %s: %v", id(o), err)
		} else if decoded == nil {
			t.Errorf("the decoded object %s is empty", id(o))
		}
	}
	for _, name := range []string{
		"DaemonSet kube-system/jettison", "DaemonSet jettison-system/jettison-bridge", "Deployment jettison-cluster/jettison-cluster-nodes",
		"Deployment kube-system/jettison-descheduler", "PodMonitor kube-system/jettison", "ServiceMonitor jettison-cluster/jettison-cluster-nodes",
		"ServiceMonitor kube-system/jettison-descheduler", "PrometheusRule kube-system/jettison", "ConfigMap kube-system/jettison-dashboards",
		"PodMonitor jettison-system/jettison-bridge", "NetworkPolicy jettison-system/jettison-bridge",
		"NetworkPolicy kube-system/jettison-descheduler", "Role jettison-system/jettison-descheduler",
	} {
		if !seen[name] {
			t.Errorf("the chart does not render %s", name)
		}
	}
}

// No program evicts pods by default. dryRun: false ends the dry run of all programs.
func TestDryRunIsTheDefault(t *testing.T) {
	const programs = "nodes: {enabled: true, mode: replace}\ndescheduler: {enabled: true}\n"
	for text, dry := range map[string]bool{programs: true, programs + "dryRun: true": true, programs + "dryRun: false": false} {
		objects := render(t, text)
		for _, name := range []string{"DaemonSet kube-system/jettison", "Deployment kube-system/jettison-descheduler"} {
			if got := slices.Contains(container(t, find(t, objects, name))["args"].([]any), any("--dry-run")); got != dry {
				t.Errorf("values %q: --dry-run of %s = %v, want %v", text, name, got, dry)
			}
		}
	}
}

// In a dry run, nodes has the mode observe only if the operator sets it. Without a mode the program
// observes, but refuses to in a cluster in which it has acted: an upgrade without dryRun: false must
// not leave that cluster without a node controller.
func TestModeOfNodes(t *testing.T) {
	for mode, want := range map[string]struct{ dry, acting any }{
		"": {nil, nil}, "observe": {"observe", "observe"}, "fence": {nil, "fence"}, "replace": {nil, "replace"},
	} {
		for dry, want := range map[bool]any{true: want.dry, false: want.acting} {
			objects := render(t, fmt.Sprintf("nodes: {enabled: true, mode: %q}\ndryRun: %v", mode, dry))
			got := at(fields(t, find(t, objects, "ConfigMap jettison-cluster/jettison-cluster-nodes"), "config.yaml"), "mode")
			if got != want {
				t.Errorf("nodes.mode %q, dryRun %v: mode in the configuration = %v, want %v", mode, dry, got, want)
			}
		}
	}
}

// fields returns the file of a ConfigMap.
func fields(t *testing.T, configMap object, file string) (out object) {
	t.Helper()
	text, _ := at(configMap, "data", file).(string)
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The values reach the objects.
func TestValuesHaveAnEffect(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	objects := render(t, everything+"rollout: {maxUnavailable: 10%, minReadySeconds: 5}\nnetworkPolicy: {enabled: false}\n")
	agent := find(t, objects, "DaemonSet kube-system/jettison")
	for what, c := range map[string]struct{ got, want any }{
		"image":           {container(t, agent)["image"], "registry.example/jettison:v1"},
		"pull secrets":    {at(agent, "spec", "template", "spec", "imagePullSecrets"), []any{object{"name": "pull"}}},
		"node selector":   {at(agent, "spec", "template", "spec", "nodeSelector"), object{"canary": "yes", "kubernetes.io/os": "linux"}},
		"max unavailable": {at(agent, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable"), "10%"},
		"ready seconds":   {at(agent, "spec", "minReadySeconds"), 5.0},
		"rule's labels":   {at(find(t, objects, "PrometheusRule kube-system/jettison"), "metadata", "labels", "release"), "prometheus"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s of the rendered agent or rule = %v, want %v", what, c.got, c.want)
		}
	}
	for _, o := range objects {
		if o["kind"] == "NetworkPolicy" {
			t.Errorf("%s is rendered with networkPolicy.enabled: false", id(o))
		}
	}
	text, err := yaml.Marshal(find(t, objects, "PrometheusRule kube-system/jettison")["spec"])
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.ReplaceAll(read(t, "../monitoring/alerts.yaml"), "https://jettison.example/docs/operate/runbook.md", "https://wiki.example/jettison")
	if got, want := decode(t, string(text))[0], decode(t, rules)[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("spec of the PrometheusRule = %v, want %v", got, want)
	}
	boards := at(find(t, objects, "ConfigMap kube-system/jettison-dashboards"), "data").(object)
	for _, file := range []string{"fleet.json", "node.json"} {
		if boards[file] != read(t, "../monitoring/"+file) {
			t.Errorf("dashboard %s differs from the file of deploy/monitoring; dashboards = %v", file, slices.Collect(maps.Keys(boards)))
		}
	}
	for _, program := range []string{"agent", "bridge", "nodes", "descheduler"} {
		files, err := tryRender(t, program+": {enabled: true, digest: \""+digest+"\"}\n")
		if err != nil || !strings.Contains(files["jettison/templates/"+program+".yaml"], "@"+digest) {
			t.Errorf("%s.digest has no effect (%v)", program, err)
		}
	}
}

// The agent accepts the configuration that the chart writes.
func TestAgentAcceptsConfiguration(t *testing.T) {
	for _, text := range []string{
		"bridge: {enabled: false}", "", "metrics: {enabled: true}", "agent: {kubeletDefaults: true}",
		"agent: {kubeletDefaults: true, config: {breaker: true, evictionHard: {memory.available: 300Mi}}}", everything,
	} {
		objects := render(t, text)
		data, _ := at(find(t, objects, "ConfigMap kube-system/jettison"), "data", "config.yaml").(string)
		if text == "bridge: {enabled: false}" {
			if data != "" {
				t.Errorf("configuration without a field = %q, want none: the agent uses the kubelet's", data)
			}
			continue
		}
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Load(t.Context(), path)
		if err != nil || len(loaded.Warnings) > 0 {
			t.Errorf("values %q: the agent reads %q: %v", text, data, err)
			continue
		}
		kubelet := strings.Contains(text, "kubeletDefaults: true")
		if got := loaded.MemoryAvailable == "workingSet"; got != kubelet {
			t.Errorf("values %q: memoryAvailable = %s, want workingSet only with kubeletDefaults", text, loaded.MemoryAvailable)
		}
		if got, want := loaded.Breaker, !kubelet || strings.Contains(text, "breaker: true"); got != want {
			t.Errorf("values %q: breaker = %v, want %v", text, got, want)
		}
	}
}

// inCluster is the error of a program that has read its flags and files, and looks for a cluster.
const inCluster = "not in a pod, and no kubeconfig"

// The cluster programs accept the flags and files of the chart, also in a dry run.
func TestClusterProgramsAcceptConfiguration(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "jettison-cluster")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/jettison-cluster")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build jettison-cluster to check the chart's flags: %v\n%s", err, out)
	}
	const both = "nodes: {enabled: true, mode: replace, config: {doubt: false, fenceAfter: 5m}}\ndescheduler: {enabled: true}\n"
	for _, text := range []string{both, both + "dryRun: false"} {
		objects := render(t, text)
		for workload, file := range map[string]string{
			"kube-system/jettison-descheduler": "policy.yaml", "jettison-cluster/jettison-cluster-nodes": "config.yaml",
		} {
			data, _ := at(find(t, objects, "ConfigMap "+workload), "data", file).(string)
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
			var args []string
			for _, arg := range container(t, find(t, objects, "Deployment "+workload))["args"].([]any) {
				args = append(args, strings.ReplaceAll(arg.(string), "/etc/jettison/"+file, path))
			}
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = []string{"HOME=" + dir}
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), inCluster) {
				t.Errorf("values %q: jettison-cluster %q: %v, %s, want an error with %q", text, args, err, out, inCluster)
			}
		}
	}
}

// A changed configuration reaches a node when the rollout replaces the pod: its ConfigMap has
// another name. Running agents read a file again that changes, so with one name all nodes would
// have the configuration within a minute, regardless of rollout.
func TestConfigurationFollowsRollout(t *testing.T) {
	const programs = "nodes: {enabled: true}\ndescheduler: {enabled: true}\n"
	named := func(text string) map[string]string {
		out := map[string]string{}
		objects, maps := render(t, text), map[any]bool{}
		for _, o := range objects {
			if o["kind"] == "ConfigMap" {
				maps[at(o, "metadata", "name")] = true
			}
		}
		for _, o := range objects {
			volumes, _ := at(o, "spec", "template", "spec", "volumes").([]any)
			for _, v := range volumes {
				if name, ok := at(v, "configMap", "name").(string); ok {
					out[id(o)] = name
					if !maps[name] {
						t.Errorf("values %q: %s mounts the ConfigMap %s, which the chart does not render", text, id(o), name)
					}
				}
			}
		}
		return out
	}
	before := named(programs)
	for workload, text := range map[string]string{
		"DaemonSet kube-system/jettison":                     "agent: {config: {maxPods: 7}}",
		"Deployment jettison-cluster/jettison-cluster-nodes": "nodes: {enabled: true, config: {doubt: false}}\ndescheduler: {enabled: true}",
		"Deployment kube-system/jettison-descheduler":        "nodes: {enabled: true}\ndescheduler: {enabled: true, policy: {profiles: []}}",
	} {
		if strings.HasPrefix(text, "agent") {
			text = programs + text
		}
		for name, after := range named(text) {
			if before[name] == "" || (after != before[name]) != (name == workload) {
				t.Errorf("values %q: ConfigMap of %s = %q, before %q, want another only for %s", text, name, after, before[name], workload)
			}
		}
	}
}

// With metrics, each program has a port of this name for its monitor, and the NetworkPolicy admits
// clients to the same port. Without them, agents and bridges open no port.
func TestMetricsHaveAPort(t *testing.T) {
	with, without := render(t, everything), render(t, "")
	for name, port := range map[string]float64{
		"DaemonSet kube-system/jettison": 9808, "DaemonSet jettison-system/jettison-bridge": 10271,
		"Deployment jettison-cluster/jettison-cluster-nodes": 10270, "Deployment kube-system/jettison-descheduler": 10258,
	} {
		kind, path, _ := strings.Cut(name, " ")
		ports, _ := container(t, find(t, with, name))["ports"].([]any)
		if len(ports) != 1 || at(ports[0], "name") != "metrics" || at(ports[0], "containerPort") != port {
			t.Errorf("ports of %s = %v, want metrics %v", name, ports, port)
		}
		monitor := map[string]string{"DaemonSet": "PodMonitor", "Deployment": "ServiceMonitor"}[kind] + " " + path
		endpoints, _ := at(find(t, with, monitor), "spec", map[string]string{"DaemonSet": "podMetricsEndpoints", "Deployment": "endpoints"}[kind]).([]any)
		if len(endpoints) != 1 || at(endpoints[0], "port") != "metrics" {
			t.Errorf("endpoints of the %s = %v, want the port metrics", monitor, endpoints)
		}
		if path != "kube-system/jettison" { // on the node's network, where no policy has an effect
			rules, _ := at(find(t, with, "NetworkPolicy "+path), "spec", "ingress").([]any)
			if want := []any{object{"port": port, "protocol": "TCP"}}; len(rules) != 1 || !reflect.DeepEqual(at(rules[0], "ports"), want) {
				t.Errorf("ingress of NetworkPolicy %s = %v, want the ports %v", path, rules, want)
			}
		}
		if kind == "DaemonSet" && container(t, find(t, without, name))["ports"] != nil {
			t.Errorf("%s has ports without metrics.enabled", name)
		}
	}
}

// The agents' pods cannot start without the Secrets of the metrics, which the notes of the
// installation name.
func TestMetricsNeedTheirSecrets(t *testing.T) {
	for text, secrets := range map[string][]string{
		"metrics: {enabled: true}": {"jettison-scrape"}, "metrics: {enabled: true, secret: own, tlsSecret: issued}": {"own", "issued"},
	} {
		volumes := at(find(t, render(t, text), "DaemonSet kube-system/jettison"), "spec", "template", "spec", "volumes")
		volume := named(volumes, "scrape")[0]
		sources := []any{at(volume, "secret")}
		if projected, ok := at(volume, "projected", "sources").([]any); ok {
			sources = nil
			for _, source := range projected {
				sources = append(sources, at(source, "secret"))
			}
		}
		var got []string
		for _, source := range sources {
			name, ok := at(source, "secretName").(string)
			if !ok {
				name, _ = at(source, "name").(string)
			}
			if got = append(got, name); at(source, "optional") != nil {
				t.Errorf("values %q: Secret %s is optional: agents would start without it", text, name)
			}
		}
		files, err := tryRender(t, text)
		notes := files["jettison/templates/NOTES.txt"]
		for _, name := range secrets {
			if err != nil || !slices.Contains(got, name) || !strings.Contains(notes, name) {
				t.Errorf("values %q: Secrets of the volume = %v, notes %q (%v), want %s in both", text, got, notes, err, name)
			}
		}
	}
}

// helmCommand matches the commands of the installation, with their flags.
var helmCommand = regexp.MustCompile(`(?m)^    helm (?:install|upgrade) jettison deploy/helm/jettison -n kube-system([^#\n]*)`)

// The documented commands are a dry run, then canary nodes, then all nodes.
func TestDocumentedCommands(t *testing.T) {
	var got []string
	for _, m := range helmCommand.FindAllStringSubmatch(read(t, "../../docs/start/install.md"), -1) {
		set := map[string]any{}
		for _, flag := range strings.Split(m[1], "--set ")[1:] {
			if err := strvals.ParseInto(strings.TrimSpace(flag), set); err != nil {
				t.Fatalf("parse the documented flag --set %s: %v", flag, err)
			}
		}
		text, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		agent := find(t, render(t, string(text)), "DaemonSet kube-system/jettison")
		nodes := at(agent, "spec", "template", "spec", "nodeSelector").(object)
		got = append(got, fmt.Sprint(container(t, agent)["args"], " on ", nodes))
	}
	want := []string{
		"[run --dry-run] on map[kubernetes.io/os:linux]", "[run] on map[jettison/canary:yes kubernetes.io/os:linux]",
		"[run] on map[kubernetes.io/os:linux]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("agents of the documented commands = %q, want %q", got, want)
	}
}

// Each value of values.yaml is in the schema, and each of the schema in values.yaml. A value of
// another type is rejected with its path.
func TestSchemaCoversValues(t *testing.T) {
	log.SetOutput(t.Output()) // Helm logs a warning for each value of another type
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	var root object
	if err := json.Unmarshal([]byte(read(t, "jettison/values.schema.json")), &root); err != nil {
		t.Fatal(err)
	}
	delete(root["properties"].(object), "global") // Helm's own
	var walk func(path []string, value any, schema object)
	walk = func(path []string, value any, schema object) {
		where := strings.Join(path, ".")
		if wrong := nested(path, 3.5); len(path) > 0 {
			_, err := tryRender(t, wrong)
			if want := "at '/" + strings.Join(path, "/") + "'"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with a value of another type: error %v, want one with %s", where, err, want)
			}
		}
		properties := properties(schema)
		if properties == nil {
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("the schema of %q accepts unknown fields", where)
		}
		below, _ := value.(object)
		for _, name := range slices.Sorted(maps.Keys(below)) {
			if properties[name] == nil {
				t.Errorf("values.schema.json lacks the value %s.%s", where, name)
				continue
			}
			walk(append(slices.Clone(path), name), below[name], properties[name].(object))
		}
		for name := range properties {
			if _, ok := below[name]; !ok {
				t.Errorf("values.yaml lacks %s.%s of the schema", where, name)
			}
		}
	}
	walk(nil, decodeFile(t, "jettison/values.yaml"), root)
}

// Helm removes a value that is null, such as a key in a file without a value. This is an error, not
// "false": dryRun without a value must not start evictions. Only a list or map that is empty by
// default may be null.
func TestNullIsRejected(t *testing.T) {
	var schema object
	if err := json.Unmarshal([]byte(read(t, "jettison/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	install := engine.Engine{} // as "helm install", which accepts an unknown value in a template
	want, err := renderWith(t, install, "")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path []string, value, schema any)
	walk = func(path []string, value, schema any) {
		for name := range properties(schema) {
			if name == "global" { // Helm's own
				continue
			}
			below, value := append(slices.Clone(path), name), at(value, name)
			got, err := renderWith(t, install, nested(below, nil))
			m, isMap := value.(object)
			list, isList := value.([]any)
			hasNoEffect := (isMap && len(m) == 0 || isList && len(list) == 0) && err == nil && maps.Equal(got, want)
			if missing := "missing property '" + name + "'"; !hasNoEffect && (err == nil || !strings.Contains(err.Error(), missing)) {
				t.Errorf("%s: null gives the error %v, want one with %q", strings.Join(below, "."), err, missing)
			}
			walk(below, value, at(schema, "properties", name))
		}
	}
	walk(nil, decodeFile(t, "jettison/values.yaml"), schema)
}

// hostile are texts with a meaning in YAML or in templates.
var hostile = []string{
	"yes", "null", "~", "123", "1e3", "0x1f", "2026-01-02", "a: b", "a #b", "a\nb: c", "\"'", "- a", "*a", "&a", " a ", "{a: b}", "%a", "{{ .Values }}",
}

// texts are values with %q for a text. The schema rejects some texts.
var texts = []string{
	"image: {registry: %q}", "image: {tag: %q}", "image: {pullSecrets: [%q]}", "nodeSelector: {a: %q}",
	"agent: {config: {record: %q}}", "agent: {config: {evictionHard: {memory.available: %q}}}", "agent: {config: {nodeLabels: {a: %q}}}",
	"agent: {config: {protectedNamespaces: [%q]}}", "nodes: {enabled: true, config: {excludedNodes: %q}}",
	"nodes: {enabled: true, config: {fenceCommand: [%q]}}", "descheduler: {enabled: true, policy: {profiles: [{name: %q}]}}",
	"metrics: {enabled: true, secret: %q}\nmonitoring: {podMonitor: {enabled: true}}",
	"metrics: {enabled: true, tlsSecret: %q}\nmonitoring: {podMonitor: {enabled: true}}",
	"metrics: {enabled: true}\nmonitoring: {podMonitor: {enabled: true, caKey: %q}}",
	"metrics: {enabled: true}\nmonitoring: {podMonitor: {enabled: true, serverName: %q}}",
	"monitoring: {prometheusRule: {enabled: true}, labels: {a: %q}}",
	"monitoring: {dashboards: {enabled: true, namespace: %q}}", "monitoring: {dashboards: {enabled: true, labels: {a: %q}}}",
}

// A text of a value arrives in the objects as the same text, and nothing else changes.
func TestTextsArriveUnchanged(t *testing.T) {
	const plain = "plain-text"
	values := func(format, text string) map[string]any {
		files, err := tryRender(t, fmt.Sprintf(format, text))
		if err != nil && !strings.Contains(err.Error(), "at '/") {
			t.Errorf("values %s: %v, want objects, or an error of the schema", fmt.Sprintf(format, text), err)
		}
		out := map[string]any{}
		for i, o := range plainNames(objectsOf(t, files)) {
			for path, value := range flat(o) {
				out[fmt.Sprintf("%s %d: %s", o["kind"], i, path)] = value
			}
		}
		return out
	}
	for _, format := range texts {
		want := values(format, plain)
		for _, text := range hostile {
			got := values(format, text)
			if len(got) == 0 || len(want) == 0 { // rejected
				continue
			}
			for _, path := range slices.Sorted(keysOf(got, want)) {
				expected := want[path]
				if s, ok := expected.(string); ok {
					expected = strings.ReplaceAll(s, plain, text)
				}
				if got[path] != expected {
					t.Errorf("values %s: rendered %s = %v, want %v", fmt.Sprintf(format, text), path, got[path], expected)
				}
			}
		}
	}
}

// properties returns the fields of an object's schema.
func properties(schema any) object {
	out, _ := at(schema, "properties").(object)
	return out
}

// nested returns values with one value at a path.
func nested(path []string, value any) string {
	for _, key := range slices.Backward(path) {
		value = object{key: value}
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Mistakes are rejected, with the path of the value.
func TestMistakesAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"agent: {config: {evictionHrad: {}}}":                                "at '/agent/config': additional properties 'evictionHrad' not allowed",
		"agent: {config: {breaker: 3}}":                                      "at '/agent/config/breaker'",
		"agent: {config: {kind: KubeletConfiguration}}":                      "at '/agent/config/kind'",
		"agent: {config: {containerGC: {minAge: [1]}}}":                      "at '/agent/config/containerGC/minAge'",
		"agent: {config: {socketGroup: root}}":                               "agent.config.socketGroup: bridge.enabled or metrics.enabled sets this field",
		"agent: {runtime: docker}":                                           "at '/agent/runtime'",
		"agent: {digest: latest}":                                            "at '/agent/digest'",
		"nodes: {config: {mode: replace}}":                                   "at '/nodes/config'",
		"nodes: {mode: act}":                                                 "at '/nodes/mode'",
		"rollout: {maxUnavailable: all}":                                     "at '/rollout/maxUnavailable'",
		"rollout: {maxUnavailable: 0}":                                       "at '/rollout/maxUnavailable'",
		"dryrun: false":                                                      "additional properties 'dryrun' not allowed",
		"dryRun: \"false\"":                                                  "at '/dryRun'",
		"monitoring: {podMonitor: {enabled: true}}":                          "monitoring.podMonitor.enabled: needs metrics.enabled",
		"monitoring: {prometheusRule: {runbookURL: \"https://a: b\"}}":       "at '/monitoring/prometheusRule/runbookURL'",
		"descheduler: {policy: []}":                                          "at '/descheduler/policy'",
		"rollout: {maxUnavailable: 101%}":                                    "at '/rollout/maxUnavailable'",
		"image: {registry: registry.example/}":                               "at '/image/registry'",
		"image: {registry: \"https://registry.example\"}":                    "at '/image/registry'",
		"image: {tag: v1@sha256}":                                            "at '/image/tag'",
		"image: {registry: \"\"}":                                            "at '/image/registry'",
		"agent: {config: {descheduling: {maxPods: many}}}":                   "at '/agent/config/descheduling/maxPods'",
		"nodes: {enabled: true, config: {leaderElectResourceName: another}}": "at '/nodes/config'",
	} {
		if _, err := tryRender(t, text); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("values %q: error %v, want one with %q", text, err, want)
		}
	}
}
