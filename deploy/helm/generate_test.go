package helm

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	clusterconfig "jettison/internal/cluster/config"
	"jettison/internal/node/config"
)

// generate writes the chart's files that are made from deploy and from the configurations' fields
// ("make generate").
var generate = flag.Bool("generate", false, "write jettison/manifests and the configurations in jettison/values.schema.json")

// object is an object of the API, as YAML decodes it.
type object = map[string]any

// at returns the value at a path of keys, or nil.
func at(o any, path ...string) any {
	for _, key := range path {
		m, ok := o.(object)
		if !ok {
			return nil
		}
		o = m[key]
	}
	return o
}

// id names an object.
func id(o object) string {
	name, _ := at(o, "metadata", "name").(string)
	if namespace, ok := at(o, "metadata", "namespace").(string); ok {
		name = namespace + "/" + name
	}
	kind, _ := o["kind"].(string)
	return kind + " " + name
}

// decode returns the objects of a YAML stream.
func decode(t *testing.T, text string) (out []object) {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("decode a document of the stream: %v\n%s", err, doc)
		}
		if o != nil {
			out = append(out, o)
		}
	}
	return out
}

// decodeFile returns the only object of a file.
func decodeFile(t *testing.T, path string) object {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, string(text))
	if len(objects) != 1 {
		t.Fatalf("%s has %d objects, want 1", path, len(objects))
	}
	return objects[0]
}

// contentHash matches the checksum in the name of a ConfigMap of kustomize, which uses some other
// letters instead of hexadecimal digits, or of the chart.
var contentHash = regexp.MustCompile(`-[0-9a-hkmt]{10}$`)

// replaced returns a value with some texts in it replaced.
func replaced(o any, texts map[string]string) any {
	switch o := o.(type) {
	case object:
		for key, value := range o {
			o[key] = replaced(value, texts)
		}
	case []any:
		for i, value := range o {
			o[i] = replaced(value, texts)
		}
	case string:
		if text, ok := texts[o]; ok {
			return text
		}
	}
	return o
}

// kustomize returns the objects of a folder of deploy. The names of ConfigMaps lack their checksum.
func kustomize(t *testing.T, folder string) (out []object) {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("render the kustomization in %s: %v", folder, err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return plainNames(decode(t, string(text)))
}

// plainNames removes the checksums from the names of ConfigMaps.
func plainNames(objects []object) []object {
	names := map[string]string{}
	for _, o := range objects {
		if name, _ := at(o, "metadata", "name").(string); o["kind"] == "ConfigMap" {
			names[name] = contentHash.ReplaceAllString(name, "")
		}
	}
	for _, o := range objects {
		replaced(o, names)
	}
	return objects
}

// encode returns objects as a YAML stream.
func encode(t *testing.T, objects ...object) string {
	t.Helper()
	var docs []string
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(text))
	}
	return strings.Join(docs, "---\n")
}

// programs are the folders of manifests, each with the kustomization that it is made from.
var programs = map[string]string{
	"agent":       "../base",
	"bridge":      "../overlays/bridge",
	"nodes":       "../cluster",
	"descheduler": "../cluster/descheduler/deployment",
}

// manifests returns the files of jettison/manifests by name.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for program, folder := range programs {
		var rest []object
		for _, o := range kustomize(t, folder) {
			switch kind := o["kind"].(string); {
			case program == "bridge" && at(o, "metadata", "name") == "jettison": // the agent of the overlay
			case kind == "DaemonSet" || kind == "Deployment":
				out[program+"/workload.yaml"] = managedByHelm(encode(t, o))
			case kind == "ConfigMap" || kind == "NetworkPolicy":
				out[program+"/"+strings.ToLower(kind)+".yaml"] = managedByHelm(encode(t, o))
			default:
				rest = append(rest, o)
			}
		}
		if len(rest) > 0 {
			out[program+"/objects.yaml"] = encode(t, rest...)
		}
	}
	out["agent/parts.yaml"] = encode(t, agentParts(t))
	out["bridge/selinux.yaml"] = encode(t, object{"spec": decodeFile(t, "../components/bridge-selinux/pod.yaml")["spec"]})
	out["bridge/openshift.yaml"] = encode(t, decodeFile(t, "../components/bridge-openshift/scc.yaml"))
	out["bridge/networkpolicy.yaml"] = encode(t, decodeFile(t, "../components/bridge-scrape/networkpolicy.yaml"))
	out["descheduler/load.yaml"] = encode(t, decode(t, read(t, "../cluster/descheduler/load/rbac.yaml"))...)
	out["monitoring/alerts.yaml"] = read(t, "../monitoring/alerts.yaml")
	dashboards, err := filepath.Glob("../monitoring/*.json")
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("dashboards = %v, %v, want at least one", dashboards, err)
	}
	for _, path := range dashboards {
		out["monitoring/"+filepath.Base(path)] = read(t, path)
	}
	return out
}

// managedByHelm replaces the label of the manager.
func managedByHelm(text string) string {
	return strings.ReplaceAll(text, "app.kubernetes.io/managed-by: kustomize", "app.kubernetes.io/managed-by: Helm")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// agentParts returns the additions of overlays and components to the agent.
func agentParts(t *testing.T) object {
	t.Helper()
	container := func(set object) object {
		return at(set, "spec", "template", "spec", "containers").([]any)[0].(object)
	}
	daemonSet := func(overlay string) object {
		for _, o := range kustomize(t, "../overlays/"+overlay) {
			if o["kind"] == "DaemonSet" {
				return o
			}
		}
		t.Fatalf("overlay %s has no DaemonSet", overlay)
		return nil
	}
	runtimes := object{}
	for _, runtime := range []string{"containerd", "crio", "k3s"} {
		set := daemonSet(runtime)
		runtimes[runtime] = object{
			"volumeMounts": named(container(set)["volumeMounts"], "runtime"),
			"volumes":      named(at(set, "spec", "template", "spec", "volumes"), "runtime"),
		}
	}
	header := object{}
	fields := func(path string) object {
		o := decodeFile(t, path)
		for _, key := range []string{"apiVersion", "kind"} {
			header[key] = o[key]
			delete(o, key)
		}
		return o
	}
	scrape := decodeFile(t, "../components/scrape/container.yaml")
	return object{
		"bridgeConfig": fields("../components/bridge/config.yaml"),
		"scrapeConfig": fields("../components/scrape/config.yaml"),
		"header":       header,
		"scrape": object{
			"ports":        container(scrape)["ports"],
			"volumeMounts": container(scrape)["volumeMounts"],
			"volumes":      at(scrape, "spec", "template", "spec", "volumes"),
		},
		"runtimes":        runtimes,
		"leastPrivilege":  container(daemonSet("least-privilege"))["securityContext"],
		"kubeletDefaults": kubeletDefaults(t),
	}
}

// named returns the parts of a list that have a name.
func named(list any, name string) (out []any) {
	for _, part := range list.([]any) {
		if at(part, "name") == name {
			out = append(out, part)
		}
	}
	return out
}

// kubeletDefaults returns the fields that have another default in a kubelet's file than in the
// agent's.
func kubeletDefaults(t *testing.T) object {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubelet, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	out := object{}
	a, b := reflect.ValueOf(kubelet.Config).Elem(), reflect.ValueOf(config.Default()).Elem()
	for i := range a.NumField() {
		field := a.Type().Field(i)
		if field.Tag.Get("own") != "" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			out[field.Tag.Get("yaml")] = a.Field(i).Interface()
		}
	}
	return out
}

// schemaOf returns the JSON schema of a type of a configuration. The programs check the values
// further.
func schemaOf(of reflect.Type, without ...string) object {
	if of == reflect.TypeFor[config.Duration]() || of == reflect.TypeFor[time.Duration]() {
		return object{"type": []any{"string", "integer"}}
	}
	switch of.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(of.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": object{"type": []any{"string", "number"}}}
	case reflect.Struct:
		fields := object{}
		for i := range of.NumField() {
			f := of.Field(i)
			if name := f.Tag.Get("yaml"); name != "-" && name != "" && !slices.Contains(without, name) {
				fields[name] = schemaOf(f.Type)
			}
		}
		return object{"type": "object", "properties": fields, "additionalProperties": false}
	}
	return object{"type": "string"}
}

// schema returns values.schema.json with generated definitions of the programs' configurations. The
// rest is edited by hand.
func schema(t *testing.T) string {
	t.Helper()
	var out object
	if err := json.Unmarshal([]byte(read(t, "jettison/values.schema.json")), &out); err != nil {
		t.Fatal(err)
	}
	agent := schemaOf(reflect.TypeFor[config.Config]())
	header := agent["properties"].(object)
	header["apiVersion"], header["kind"] = object{"const": config.APIVersionAgent}, object{"const": config.KindAgent}
	out["$defs"] = object{
		"agentConfiguration": agent,
		// The chart and the admission policies set the other fields.
		"clusterConfiguration": schemaOf(reflect.TypeFor[clusterconfig.Cluster](),
			"mode", "leaderElectResourceName", "leaderElectResourceNamespace", "address"),
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(out); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// versionLine matches the fields of Chart.yaml that have a version.
var versionLine = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chartFile returns Chart.yaml with the version of the file VERSION. The rest is edited by hand.
func chartFile(t *testing.T) string {
	t.Helper()
	version := strings.TrimSpace(read(t, "../../VERSION"))
	return versionLine.ReplaceAllString(read(t, "jettison/Chart.yaml"), "$1: "+version)
}

// The chart's version and its copies of manifests, rules, dashboards and fields match their sources.
func TestChartFilesAreFresh(t *testing.T) {
	want := map[string]string{"values.schema.json": schema(t), "Chart.yaml": chartFile(t)}
	for name, text := range manifests(t) {
		want["manifests/"+name] = text
	}
	if *generate {
		if err := os.RemoveAll("jettison/manifests"); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			path := filepath.Join("jettison", name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, err := os.ReadFile(filepath.Join("jettison", name)); err != nil || string(got) != want[name] {
			t.Errorf("jettison/%s is stale (%v): run \"make generate\"", name, err)
		}
	}
	err := filepath.WalkDir("jettison/manifests", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && want[strings.TrimPrefix(filepath.ToSlash(path), "jettison/")] == "" {
			t.Errorf("%s has no source: run \"make generate\"", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
