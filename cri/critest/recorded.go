package critest

import (
	"embed"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// recordings are answers of real runtimes, one file for each call and object, and files of their
// nodes. Parts that no test needs were removed.
//
//go:embed testdata
var recordings embed.FS

// Names of the recordings: CRI-O 1.37.0 with each cgroup driver, its default settings otherwise, and
// its monitors in the pods' cgroups.
const (
	CRIOSystemd  = "crio-1.37-systemd"
	CRIOCgroupfs = "crio-1.37-cgroupfs"
)

// Recorded returns the files of a recording by name, such as "ListImages" and "mountinfo".
func Recorded(t testing.TB, name string) map[string]string {
	t.Helper()
	text, err := recordings.ReadFile("testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range txtar.Parse(text).Files {
		out[f.Name] = string(f.Data)
	}
	return out
}

// StartRecorded starts a runtime with the objects of a recording.
func StartRecorded(t testing.TB, name string) *Runtime {
	t.Helper()
	r := Start(t)
	r.Streams = true
	for call, text := range Recorded(t, name) {
		read := func(m proto.Message) {
			if err := protojson.Unmarshal([]byte(text), m); err != nil {
				t.Fatalf("decode answer %s of recording %s: %v", call, name, err)
			}
		}
		call, id, _ := strings.Cut(call, "/")
		switch call {
		case "Status":
			m := &runtimev1.StatusResponse{}
			read(m)
			r.Conditions, r.Config = m.GetStatus().GetConditions(), m.GetInfo()["config"]
		case "RuntimeConfig":
			m := &runtimev1.RuntimeConfigResponse{}
			read(m)
			r.CgroupDriver = m.GetLinux().GetCgroupDriver()
		case "ListPodSandbox":
			m := &runtimev1.ListPodSandboxResponse{}
			read(m)
			r.Sandboxes = m.Items
		case "ListContainers":
			m := &runtimev1.ListContainersResponse{}
			read(m)
			r.Containers = m.Containers
		case "PodSandboxStatus":
			m := &runtimev1.PodSandboxStatusResponse{}
			read(m)
			r.SandboxStatuses[id], r.Info[id] = m.Status, m.Info["info"]
		case "ContainerStatus":
			m := &runtimev1.ContainerStatusResponse{}
			read(m)
			r.ContainerStatuses[id], r.Info[id] = m.Status, m.Info["info"]
		case "ListContainerStats":
			m := &runtimev1.ListContainerStatsResponse{}
			read(m)
			r.Stats = m.Stats
		case "ListImages":
			m := &runtimev1.ListImagesResponse{}
			read(m)
			r.Images = m.Images
		case "ImageFsInfo":
			m := &runtimev1.ImageFsInfoResponse{}
			read(m)
			r.ImageFs, r.ContainerFs = m.ImageFilesystems, m.ContainerFilesystems
		}
	}
	return r
}
