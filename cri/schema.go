package cri

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Needed fields of a sandbox, a container and an image, by their names in the CRI. Of a map, Keeps
// selects the entries.
var (
	ofSandbox   = []string{"id", "metadata", "state", "created_at", "annotations", "runtime_handler"}
	ofContainer = []string{
		"id", "pod_sandbox_id", "metadata", "image.image", "image_ref", "image_id", "state", "created_at",
		"labels",
	}
	ofContainerStatus = []string{
		"id", "metadata", "image.image", "image_ref", "image_id", "state", "created_at", "started_at",
		"finished_at", "exit_code", "reason",
		"labels", "log_path", "mounts.image.image", "resources.linux.memory_limit_in_bytes",
		"resources.linux.cpu_shares",
		"resources.linux.oom_score_adj",
		"resources.linux.unified",
	}
	ofImage = []string{"id", "repo_tags", "repo_digests", "size", "pinned", "spec.image",
		"spec.runtime_handler"}
	ofStats = []string{"attributes.id", "writable_layer"}
)

// schemas holds the needed fields of each answer that a tenant can influence, by the name of the
// message.
var schemas = partsOf(map[proto.Message][]string{
	&runtimev1.ListPodSandboxResponse{}:     below("items", ofSandbox),
	&runtimev1.StreamPodSandboxesResponse{}: below("pod_sandboxes", ofSandbox),
	&runtimev1.ListContainersResponse{}:     below("containers", ofContainer),
	&runtimev1.StreamContainersResponse{}:   below("containers", ofContainer),
	&runtimev1.ListImagesResponse{}:         below("images", ofImage),
	&runtimev1.StreamImagesResponse{}:       below("images", ofImage),
	&runtimev1.ImageStatusResponse{}:        below("image", ofImage),
	&runtimev1.ListContainerStatsResponse{}: below("stats", ofStats),
	&runtimev1.ContainerStatsResponse{}:     below("stats", ofStats),
	&runtimev1.PodSandboxStatusResponse{}: append(below("status", ofSandbox), "status.labels",
		"info"),
	&runtimev1.ContainerStatusResponse{}: append(below("status", ofContainerStatus), "info"),
	&runtimev1.StatusResponse{}:          {"status", "info"},
})

func below(field string, names []string) (out []string) {
	for _, name := range names {
		out = append(out, field+"."+name)
	}
	return out
}

// info holds the needed parts of the JSON values in verbose statuses, by key.
var info = map[string]*member{
	"info":   memberOf(reflect.TypeFor[verboseInfo]()),
	"config": memberOf(reflect.TypeFor[runtimeConfig]()),
}

// schemaOf returns the needed fields of a message.
func schemaOf(m proto.Message) *schema { return schemas[m.ProtoReflect().Descriptor().FullName()] }

func partsOf(names map[proto.Message][]string) map[protoreflect.FullName]*schema {
	out := map[protoreflect.FullName]*schema{}
	for m, paths := range names {
		of := &schema{fields: map[protowire.Number]*schema{}}
		for _, path := range paths {
			of.add(m.ProtoReflect().Descriptor(), path)
		}
		out[m.ProtoReflect().Descriptor().FullName()] = of
	}
	return out
}

// add adds a field, and all fields below it if the path ends there.
func (of *schema) add(d protoreflect.MessageDescriptor, path string) {
	name, rest, more := strings.Cut(path, ".")
	f := d.Fields().ByName(protoreflect.Name(name))
	if f == nil {
		panic(fmt.Sprintf("the CRI has no %s in %s", name, d.FullName()))
	}
	p := of.fields[f.Number()]
	if p == nil {
		p = &schema{list: f.IsList()}
		of.fields[f.Number()] = p
	}
	switch {
	case f.IsMap():
		p.keys = Keeps
		if name == "info" {
			p.keys, p.json = func(key []byte, _ int) bool { return info[string(key)] != nil }, info
		}
	case f.Message() != nil:
		if p.fields == nil {
			p.fields = map[protowire.Number]*schema{}
		}
		if more {
			p.add(f.Message(), rest)
			return
		}
		for i := range f.Message().Fields().Len() {
			p.add(f.Message(), string(f.Message().Fields().Get(i).Name()))
		}
	}
}

// relevantKeys are the annotations and labels that determine the protection and the requests of a
// pod. They are decoded regardless of the number of other keys.
var relevantKeys = map[string]bool{
	"kubernetes.io/config.source": true, "kubernetes.io/config.mirror": true,
	"jettison/priority": true, "jettison/memory-request": true, "jettison/never-evict": true,
	// labels of a pod's controller
	labelTemplateHash: true, labelRevisionHash: true, labelStatefulSet: true, labelJob: true,
	// annotations that only the runtime may write
	crioOldOverhead: true, crioOverhead: true, crioOldResources: true, crioResources: true,
}

// Keeps reports whether to decode an entry of a map after n other entries. It selects relevant
// annotations, labels of the kubelet, and files of a memory cgroup. The number is limited, because
// a tenant may set thousands.
func Keeps(key []byte, n int) bool {
	if relevantKeys[string(key)] {
		return true
	}
	if n >= maxEntries {
		return false
	}
	for _, prefix := range [...]string{"jettison/", "kubernetes.io/config.", "io.kubernetes.",
		"memory."} {
		if bytes.HasPrefix(key, []byte(prefix)) {
			return true
		}
	}
	return false
}
