package planner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	dumpNode = `{"kind":"Node","metadata":{"name":"n1","resourceVersion":"5"},"status":{"allocatable":{"cpu":"4"}}}`
	dumpPod  = `{"kind":"Pod","metadata":{"name":"p","resourceVersion":"7"},"spec":{"nodeName":"n1"}}`
)

// A malformed field that no plan reads does not stop the reading of a dump; one that plans read
// does.
func TestMalformedUnusedFieldIsIgnored(t *testing.T) {
	for text, want := range map[string]string{ // part of the error; empty: none
		"kind: Node\nmetadata: {name: n1}\nstatus: {nodeInfo: {machineID: 00000000}, allocatable: {cpu: 4}}\n":                                     "",
		"kind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 4}, conditions: [{type: Ready, status: \"True\", lastHeartbeatTime: x}]}\n": "",
		"kind: Node\nmetadata: {name: n1, resourceVersion: 5, managedFields: x}\n":                                                                 "",
		"kind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: many}}\n":                                                                   "Node n1: ",
		dumpNode + `{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n1","hostname":5,"containers":[{"name":"c","env":[{"name":"A","value":7}],
"resources":{"requests":{"cpu":"1"}}}],"volumes":[{"name":"v","hostPath":{"path":0}}]},"status":{"phase":"Running","podIP":1}}`: "",
		dumpNode + `{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n1","hostname":5,"priority":"high"}}`: "Pod default/p: json: cannot unmarshal string",
		dumpNode + `{"kind":"ConfigMap","metadata":{"name":"c","annotations":{"a":1}}}`:                             "",
	} {
		all := newObjects()
		err := all.read([]byte(text), "t")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("read(%s) = %v, want %q", text, err, want)
		}
		if err != nil || len(all.Pods) == 0 {
			continue
		}
		if p := all.Pods[0]; p.Spec.NodeName != "n1" || p.Spec.Containers[0].Resources.Requests.Cpu().Value() != 1 || p.Spec.Volumes[0].HostPath == nil {
			t.Errorf("pod = %+v, want its node, request and hostPath volume", p)
		}
	}
}

// The output of "kubectl cluster-info dump" has the logs of containers between its lists.
func TestLogsInDumpAreIgnored(t *testing.T) {
	logs := "==== START logs for container c of pod default/p ====\n{\"kind\":\"Pod\",\n==== END logs for container d of pod default/p ====\n" +
		"more\n==== END logs for container c of pod default/p ====\n"
	all := newObjects()
	err := all.read([]byte(`{"kind":"NodeList","items":[`+dumpNode+"]}\n"+logs+`{"kind":"PodList","items":[`+dumpPod+"]}\n"+logs+logs), "t")
	if err != nil || len(all.Nodes) != 1 || len(all.Pods) != 1 {
		t.Errorf("read() = %v, %d nodes, %d pods, want one each", err, len(all.Nodes), len(all.Pods))
	}
	all = newObjects()
	if err := all.read([]byte(dumpNode+"\n"+logs[:80]), "t"); err != nil || len(all.Nodes) != 1 {
		t.Errorf("read() of a dump that ends in a log = %v, %d nodes, want one", err, len(all.Nodes))
	}
}

// The last line of a log may have no end: a container wrote a part of it, or a prompt.
func TestLogWithoutLastNewline(t *testing.T) {
	all := newObjects()
	err := all.read([]byte(dumpNode+"\n==== START logs for container c of pod default/p ====\nloading ...==== END logs for container c of pod default/p ====\n"+dumpPod), "t")
	if err != nil || len(all.Nodes) != 1 || len(all.Pods) != 1 {
		t.Errorf("read() = %v, %d nodes, %d pods, want one each", err, len(all.Nodes), len(all.Pods))
	}
}

// A pod with a malformed field keeps the name of its scheduler.
func TestMalformedPodKeepsScheduler(t *testing.T) {
	all := newObjects()
	err := all.read([]byte(`{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n1","hostname":5,"schedulerName":"volcano"}}`), "t")
	if err != nil || len(all.Pods) != 1 || all.Pods[0].Spec.SchedulerName != "volcano" {
		t.Errorf("read() = %v, pods %+v, want one of scheduler volcano", err, all.Pods)
	}
}

// An object in two files counts once; of different versions the newest counts, with a notice.
func TestObjectInTwoFiles(t *testing.T) {
	newer := strings.Replace(strings.Replace(dumpPod, `"7"`, `"12"`, 1), "n1", "n2", 1)
	list := `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p","namespace":"default","resourceVersion":"7"},"spec":{"nodeName":"n1"}}]}`
	for name, c := range map[string]struct {
		files  []string
		node   string
		notice string
	}{
		"identical":   {[]string{dumpNode + dumpPod, list}, "n1", ""},
		"older first": {[]string{dumpNode + dumpPod, newer}, "n2", "1 object with different versions: the plan uses the newest, for example of Pod default/p (7 and 12)"},
		"newer first": {[]string{dumpNode + newer, dumpPod}, "n2", "1 object with different versions: the plan uses the newest, for example of Pod default/p (12 and 7)"},
	} {
		dir := t.TempDir()
		var files []string
		for i, text := range c.files {
			file := filepath.Join(dir, string(rune('a'+i))+".json")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		var stderr strings.Builder
		s, err := (&Offline{From: files}).snapshot(&stderr)
		if err != nil {
			t.Errorf("%s: snapshot() = %v, want no error", name, err)
			continue
		}
		if len(s.Pods) != 1 || s.Pods[0].Spec.NodeName != c.node || !strings.Contains(stderr.String(), c.notice) ||
			c.notice == "" && stderr.String() != "" {
			t.Errorf("%s: pods = %+v, stderr %q, want one on %s and the notice %q", name, s.Pods, stderr.String(), c.node, c.notice)
		}
	}
}

// A folder, such as that of must-gather, is read with its subfolders. Files without Kubernetes
// objects are ignored; a malformed object is an error.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cluster-scoped-resources/core/nodes/n1.yaml", "---\napiVersion: v1\n"+"kind: Node\nmetadata: {name: n1}\n")
	write("namespaces/default/core/pods.yaml", "---\napiVersion: v1\nitems:\n- metadata: {name: p, namespace: default}\n  spec: {nodeName: n1}\nkind: PodList\n")
	write("namespaces/default/pods/p/p.yaml", "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: default}\nspec: {nodeName: n1}\n")
	write("namespaces/default/pods/p/c/c/logs/current.log", "{")
	write("etcd_info/alarm_list.json", "{}")
	write("etcd_info/empty.json", "")
	var stderr strings.Builder
	s, err := (&Offline{From: []string{dir}}).snapshot(&stderr)
	if err != nil || len(s.Nodes) != 1 || len(s.Pods) != 1 {
		t.Fatalf("snapshot() = %v, %+v, want one node and one pod", err, s)
	}
	if want := "ignored 2 files in " + dir + " without Kubernetes objects, for example " + filepath.Join(dir, "etcd_info/alarm_list.json"); !strings.Contains(stderr.String(), want) {
		t.Errorf("stderr = %q, want %q", stderr.String(), want)
	}
	write("namespaces/default/core/bad.yaml", "kind: Pod\nmetadata: {name: q}\nspec: {priority: high}\n")
	if _, err := (&Offline{From: []string{dir}}).snapshot(&stderr); err == nil || !strings.Contains(err.Error(), "bad.yaml: document 1: Pod default/q: ") {
		t.Errorf("snapshot() with a malformed pod = %v, want an error about bad.yaml", err)
	}
}
