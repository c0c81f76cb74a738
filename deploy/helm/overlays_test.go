package helm

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// difference is a place at which chart and overlays differ on purpose.
type difference struct {
	object string // prefix of id
	path   string // prefix of the path in the object; empty: the object is missing on one side
	reason string
}

// differences lists every place at which an overlay and the chart differ. The chart omits the
// component bridge-events, because it requires Kubernetes 1.30, and the descheduler's job and
// cronjob. The checksums in the names of ConfigMaps are removed on both sides.
var differences = []difference{
	{"", "metadata.labels.app.kubernetes.io/managed-by", "the manager is another"},
	{"DaemonSet ", "spec.template.metadata.labels.app.kubernetes.io/managed-by", "the manager is another"},
}

// same has values and kustomizations that render equal objects, except for the differences.
var same = map[string]struct{ values, kustomization string }{
	"containerd":      {"bridge: {enabled: false}", "resources: [../overlays/containerd]"},
	"crio":            {"agent: {runtime: crio}\nbridge: {enabled: false}", "resources: [../overlays/crio]"},
	"k3s":             {"agent: {runtime: k3s}\nbridge: {enabled: false}", "resources: [../overlays/k3s]"},
	"least-privilege": {"agent: {leastPrivilege: true}\nbridge: {enabled: false}", "resources: [../overlays/least-privilege]"},
	"bridge":          {"", "resources: [../overlays/bridge]"},
	"selinux":         {"bridge: {selinux: true}", "resources: [../overlays/bridge]\ncomponents: [../components/bridge-selinux]"},
	"dry-run":         {"dryRun: true", "resources: [../overlays/dry-run]"},
	"canary":          {`nodeSelector: {jettison/canary: "yes"}`, "resources: [../overlays/canary]"},
	"openshift":       {"agent: {runtime: crio}\nbridge: {openshift: true}", "resources: [../overlays/openshift]"},
	"scrape": {"metrics: {enabled: true}\nbridge: {enabled: false}", `resources: [../overlays/containerd]
components: [../components/scrape]
configMapGenerator:
  - {name: jettison, namespace: kube-system, behavior: merge, files: [config.yaml]}`},
	"bridge-scrape": {"metrics: {enabled: true}", `resources: [../overlays/bridge]
components: [../components/scrape, ../components/bridge-scrape]
configMapGenerator:
  - {name: jettison, namespace: kube-system, behavior: merge, files: [config.yaml=both.yaml]}`},
	"registry": {"image: {registry: registry.example, tag: v1}", `resources: [../overlays/bridge]
images:
  - {name: localhost/jettison, newName: registry.example/jettison, newTag: v1}
  - {name: localhost/jettison-bridge, newName: registry.example/jettison-bridge, newTag: v1}`},
	"nodes": {"agent: {enabled: false}\nbridge: {enabled: false}\nnodes: {enabled: true}", "resources: [../cluster]"},
	"descheduler": {"agent: {enabled: false}\nbridge: {enabled: false}\ndescheduler: {enabled: true, load: true}",
		"resources: [../cluster/descheduler/deployment]\ncomponents: [../cluster/descheduler/load]"},
}

// The chart and the overlays give equal objects, except for the differences, each of which exists.
func TestChartEqualsOverlays(t *testing.T) {
	used := make([]bool, len(differences))
	for name, c := range same {
		own := overlay(t, c.kustomization)
		values := c.values
		if !strings.Contains(values, "dryRun:") {
			values += "\ndryRun: false\n"
		}
		chart, overlays := byID(plainNames(render(t, values))), byID(kustomize(t, own))
		if len(overlays) == 0 {
			t.Errorf("%s: the overlay renders no object", name)
		}
		for _, key := range slices.Sorted(keysOf(chart, overlays)) {
			a, b := flat(chart[key]), flat(overlays[key])
			if a == nil || b == nil {
				t.Errorf("%s: %s exists in the chart: %v, in the overlay: %v", name, key, a != nil, b != nil)
				continue
			}
			for _, path := range slices.Sorted(keysOf(a, b)) {
				if reflect.DeepEqual(a[path], b[path]) {
					continue
				}
				at := slices.IndexFunc(differences, func(d difference) bool {
					return strings.HasPrefix(key, d.object) && strings.HasPrefix(path, d.path)
				})
				if at < 0 {
					t.Errorf("%s: %s: field %s differs: the chart has %v, the overlay has %v", name, key, path, a[path], b[path])
					continue
				}
				used[at] = true
			}
		}
	}
	for i, d := range differences {
		if !used[i] {
			t.Errorf("chart and overlays no longer differ in %s%s: remove the line from the table", d.object, d.path)
		}
	}
}

// overlay writes a kustomization next to a copy of the manifests, and returns its folder.
func overlay(t *testing.T, text string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"base", "overlays", "components", "cluster"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("..", part))); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + text + "\n",
		"config.yaml":        read(t, "../components/scrape/config.yaml"),
		"both.yaml":          read(t, "../components/scrape/config.yaml") + "socketGroup: \"64113\"\n",
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return own
}

func byID(objects []object) map[string]object {
	out := map[string]object{}
	for _, o := range objects {
		out[id(o)] = o
	}
	return out
}

// keysOf returns the keys of both maps, each once.
func keysOf[V any](a, b map[string]V) func(yield func(string) bool) {
	all := map[string]bool{}
	for _, m := range []map[string]V{a, b} {
		for key := range m {
			all[key] = true
		}
	}
	return func(yield func(string) bool) {
		for key := range all {
			if !yield(key) {
				return
			}
		}
	}
}

// mergeKeys are the fields that name the elements of lists in which the order has no meaning
// (k8s.io/api, patchMergeKey).
var mergeKeys = map[string]string{"volumes": "name", "volumeMounts": "mountPath"}

// flat returns the values of an object by their paths. Files of a ConfigMap are read as YAML. It
// returns nil for no object.
func flat(o object) map[string]any {
	if o == nil {
		return nil
	}
	out := map[string]any{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case object:
			for key, below := range v {
				var file object
				if text, ok := below.(string); ok && path == "data" && yaml.Unmarshal([]byte(text), &file) == nil {
					below = file
				}
				walk(strings.TrimPrefix(path+"."+key, "."), below)
			}
		case []any:
			for i, below := range v {
				key := strconv.Itoa(i)
				if name, ok := at(below, mergeKeys[path[strings.LastIndex(path, ".")+1:]]).(string); ok {
					key = name
				}
				walk(path+"["+key+"]", below)
			}
		default:
			out[path] = value
		}
	}
	walk("", o)
	return out
}
