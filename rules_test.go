// Package jettison, the root of the module, has only tests of the rules for the code.
package jettison

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Rooms that other rooms import: the vocabulary, the boundaries, the pure cores of a node, and the types of sockets and records.
var (
	publicRooms = []string{"cgroup", "seqfile", "cri", "cri/nri", "stats", "stats/read", "stats/read/podindex",
		"eviction", "reclaim",
		"reclaim/nodedeschedule", "admit", "api"}
	clusterCores = []string{"cluster", "cluster/"}
	shared       = []string{"internal/node/", "internal/base/"}
)

// mayImport lists the rooms of this module that a folder, and those below it, may import (docs/build/architecture.md).
// A name that ends in a slash stands for all folders below it. A folder without a rule of its own has that of the nearest
// one above. Within internal, base imports nothing, node imports base, and the programs' rooms never import each other.
var mayImport = map[string][]string{
	"stats":                  {},
	"stats/read":             {"stats", "cgroup", "cri", "seqfile", "stats/read/"},
	"cgroup":                 {"seqfile"},
	"seqfile":                {},
	"cri":                    {},
	"cri/critest":            {},
	"cri/nri":                {"cri"},
	"eviction":               {"stats"},
	"reclaim":                {"stats"},
	"reclaim/nodedeschedule": {"stats"},
	"admit":                  {"stats"},
	"api":                    {"stats"},
	// Manifests need the parts that read configuration with lines and similar names. They are pure as well.
	"pods/spec": {"internal/base/nearest", "internal/base/podjson", "internal/base/strict"},
	"pods/set":  {"internal/base/strict", "pods/spec"},

	// The packages below do not import the Reader.
	"stats/read/disk": {"stats", "cri", "stats/read/hostroot", "stats/read/mounts", "stats/read/openfiles", "stats/read/podindex",
		"stats/read/quota", "stats/read/walk"},
	"stats/read/openfiles": {"stats", "cgroup", "seqfile", "stats/read/hostroot", "stats/read/mounts", "stats/read/procfs", "stats/read/quota",
		"stats/read/walk"},
	"stats/read/network":  {"stats", "stats/read/podindex", "stats/read/procfs"},
	"stats/read/podindex": {"stats", "cgroup", "cri"},
	"stats/read/procfs":   {"stats", "cgroup"},
	"stats/read/hostroot": {"stats"},
	"stats/read/quota":    {"stats/read/walk"},
	"stats/read/walk":     {},
	"stats/read/mounts":   {"seqfile"},
	"stats/read/hosttest": {"cri", "stats/read/podindex"},

	"seqfile/seqtest":         {"internal/base/race"},
	"internal/base":           {"internal/base/"},
	"internal/kube":           {"internal/kube/", "internal/base/"},
	"internal/node":           rooms(publicRooms, shared),
	"internal/node/nodetest":  rooms(publicRooms, shared, []string{"cri/critest"}),
	"internal/agent":          rooms(publicRooms, shared, []string{"internal/agent/"}),
	"internal/cli":            rooms(publicRooms, shared, []string{"internal/cli/"}),
	"internal/bridge":         rooms(publicRooms, shared, []string{"internal/bridge/", "internal/kube/"}),
	"internal/bridge/verdict": {"api", "stats"},
	"internal/cluster":        rooms(clusterCores, shared, []string{"api", "internal/cluster/", "internal/kube/"}),
	"internal/kubectl":        rooms(shared[1:], []string{"api", "stats", "internal/kubectl/", "internal/kube/"}),
	"internal/kubectl/fleet":  {"api", "stats"},
	// Any program of the cluster may import it, so it imports none of them.
	"internal/cluster/kubeclient": {"internal/base/", "internal/kube/"},

	"cmd/jettison":         rooms(publicRooms, []string{"internal/"}),
	"cmd/jettison-bridge":  rooms([]string{"api", "internal/bridge/"}, shared),
	"cmd/jettison-cluster": rooms(clusterCores, []string{"internal/cluster/"}, shared),
	"cmd/kubectl-jettison": rooms([]string{"internal/kubectl/"}, shared[1:]),

	"cluster":            {},
	"cluster/lifecycle":  {"cluster"},
	"cluster/taint":      {"cluster"},
	"cluster/fence":      {"cluster"},
	"cluster/model":      {},
	"cluster/deschedule": {"cluster/model"},

	"deploy/oci":          {"deploy/oci"},
	"deploy/render":       {},
	"deploy/helm":         {},
	"deploy/release":      {},
	"e2e":                 {"e2e/", "api", "deploy/oci"},
	"e2e/cluster/bridges": {"internal/bridge"}, // many of them in one process
	// Modules of their own: they link the descheduler, kube-controller-manager's controllers, the agent's HTTP handlers.
	"e2e/descheduler": {"cluster/", "internal/cluster/descheduler/policyfile"},
	"e2e/oracle":      {"admit", "cluster", "cluster/", "internal/", "pods/", "stats"},
	"e2e/ui":          {"e2e/", "api", "stats", "internal/"},
}

// rooms joins lists of rooms.
func rooms(lists ...[]string) []string { return slices.Concat(lists...) }

// pure packages decide, or define the types of decisions. They do no I/O, do not wait and start no goroutines.
var pure = []string{"stats", "eviction", "reclaim", "reclaim/nodedeschedule", "admit", "internal/bridge/verdict",
	"internal/kubectl/fleet", "cluster", "cluster/lifecycle", "cluster/taint", "cluster/fence", "cluster/model", "cluster/deschedule",
	"pods/spec", "pods/set"}

// impure are the imports that a pure package must not have.
var impure = []string{
	"os", "os/exec", "net", "net/http", "io/ioutil", "syscall", "golang.org/x/sys/unix", "log", "log/slog", "context",
	"jettison/cgroup", "jettison/cri",
}

// impureAtLast are packages that no pure package may link, even indirectly: I/O of any kind. net/http comes with k8s.io/api.
var impureAtLast = []string{
	"google.golang.org/grpc", "github.com/vishvananda/netlink", "github.com/godbus/dbus", "github.com/coreos/go-systemd", "os/exec",
	"k8s.io/client-go", "k8s.io/cri-api", "jettison/cgroup", "jettison/cri",
}

func TestImportsFollowTheHouse(t *testing.T) {
	for dir, imports := range importsByFolder(t) {
		rule, ok := ruleFor(dir)
		if !ok {
			t.Errorf("%s: no rule for this folder in rules_test.go", dir)
			continue
		}
		for _, path := range imports {
			own, isOwn := strings.CutPrefix(path, "jettison/")
			if own == "internal/agent" && dir != "internal/agent" && dir != "cmd/jettison" {
				t.Errorf("%s imports the loop, and parts of the loop must not", dir)
			}
			if isOwn && own != dir && !slices.ContainsFunc(rule, func(allowed string) bool {
				return own == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(own+"/", allowed)
			}) {
				t.Errorf("%s imports %s; it may import %v", dir, own, rule)
			}
		}
		if slices.Contains(pure, dir) {
			for _, path := range imports {
				if slices.Contains(impure, path) {
					t.Errorf("%s is pure and imports %s", dir, path)
				}
			}
		}
	}
}

// ruleFor finds the rule of a folder or of the nearest one above it.
func ruleFor(dir string) ([]string, bool) {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if rule, ok := mayImport[dir]; ok {
			return rule, true
		}
	}
	return nil, false
}

// importsByFolder reads every Go file of the checkout but tests of packages.
func importsByFolder(t *testing.T) map[string][]string {
	out := map[string][]string{}
	for _, path := range goFiles(t) {
		// Scenarios are tests, but have a rule like other packages.
		if strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(filepath.ToSlash(path), "e2e/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		out[dir] = append(out[dir], "") // a folder without imports needs a rule, too
		for _, i := range file.Imports {
			out[dir] = append(out[dir], strings.Trim(i.Path.Value, `"`))
		}
	}
	return out
}

func goFiles(t *testing.T) (files []string) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: the package has no package comment", dir)
		}
	}
}

// The agent's binary must not link these packages: each is megabytes of resident memory, or a client of an API that the
// privileged agent does not use.
func TestTheAgentStaysLean(t *testing.T) {
	forbid(t, "cmd/jettison", linked(t, "cmd/jettison"), []string{
		"k8s.io/client-go", "k8s.io/kubernetes", "go.opentelemetry.io", "github.com/google/go-containerregistry", "testing", "jettison/e2e",
		"jettison/deploy", "jettison/internal/bridge", "jettison/internal/cluster", "github.com/prometheus/client_golang",
	})
}

// The bridge uses only the API server and the agent's socket. A clientset of all API groups would be most of its memory.
func TestTheBridgeStaysLean(t *testing.T) {
	forbid(t, "cmd/jettison-bridge", linked(t, "cmd/jettison-bridge"), []string{
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/kubernetes", "go.opentelemetry.io", "google.golang.org/grpc", "testing",
		"jettison/internal/agent", "jettison/cri", "jettison/cgroup", "jettison/e2e", "jettison/deploy",
	})
}

// The plugin of kubectl lists objects and runs commands in pods. A clientset of all API groups, or kubectl's own commands with
// kustomize, would nearly double it. It runs where kubectl does, so that it links nothing of a node.
func TestThePluginStaysLean(t *testing.T) {
	forbid(t, "cmd/kubectl-jettison", linked(t, "cmd/kubectl-jettison"), []string{
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/cli-runtime", "k8s.io/kubectl", "k8s.io/kubernetes",
		"sigs.k8s.io/kustomize", "go.opentelemetry.io", "google.golang.org/grpc", "github.com/vishvananda/netlink", "testing",
		"jettison/internal/agent", "jettison/internal/node", "jettison/internal/bridge", "jettison/cri", "jettison/cgroup", "jettison/e2e",
		"jettison/deploy",
	})
}

// The rooms of the agent, its commands and future programs link no client of the Kubernetes API.
func TestNodeRoomsLinkNoAPIClient(t *testing.T) {
	for _, room := range []string{"base", "node", "agent", "cli"} {
		dir := "internal/" + room + "/..."
		forbid(t, dir, linked(t, dir), []string{"k8s.io/client-go", "jettison/internal/kube"})
	}
}

// maxLinked bounds the packages that the agent's binary is made of, the standard library's included. Raise it with a reason in the commit:
// each of them is code that runs privileged.
const maxLinked = 520

func TestTheAgentLinksABoundedNumberOfPackages(t *testing.T) {
	if n := len(linked(t, "cmd/jettison")); n > maxLinked {
		t.Errorf("the agent links %d packages, more than %d", n, maxLinked)
	}
}

// buildTags are the tags of the released programs. Without grpcnotrace, grpc links golang.org/x/net/trace, which has a page of templates.
const buildTags = "-tags grpcnotrace"

// A template may call any method. If a program can execute one, the linker keeps every exported method: 6 of 31 MB of the agent, 26 of 61 MB
// of jettison-cluster. Cobra executes only the templates that a program sets.
func TestTheProgramsExecuteNoTemplates(t *testing.T) {
	for line := range strings.SplitSeq(output(t, "list", "-deps", strings.Replace(buildTags, " ", "=", 1), "-f",
		`{{.ImportPath}} {{join .Imports " "}}`, "./cmd/..."), "\n") {
		importer, imports, _ := strings.Cut(line, " ")
		for _, name := range strings.Fields(imports) {
			if (name == "text/template" || name == "html/template") && importer != "github.com/spf13/cobra" && importer != "html/template" {
				t.Errorf("%s imports %s: the programs may not execute templates", importer, name)
			}
		}
	}
	setter := regexp.MustCompile(`\.Set(Usage|Help|Version)Template\(`)
	for _, path := range goFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if product(path) && setter.Match(text) {
			t.Errorf("%s sets a template of cobra: set a function instead", path)
		}
	}
	for _, path := range []string{"Makefile", "Dockerfile"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, " go build ") || strings.Contains(line, " go build -C ") { // another module's
				continue
			}
			found++
			if !strings.Contains(line, " "+buildTags+" ") {
				t.Errorf("%s builds a program without %s: %s", path, buildTags, line)
			}
		}
		if found == 0 {
			t.Errorf("%s has no line with go build", path)
		}
	}
}

// Purity is transitive.
func TestPureCoresLinkNoIO(t *testing.T) {
	for _, dir := range pure {
		forbid(t, dir, linked(t, dir), impureAtLast)
	}
}

// linked returns all packages that a package links.
func linked(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(output(t, "list", "-deps", "./"+dir))
}

// output returns the standard output of a go command. Its standard error goes to the test's, with the command's downloads.
func output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run the command go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// forbid fails the test for linked packages that are forbidden, by name or by a folder above them.
func forbid(t *testing.T, dir string, linked, forbidden []string) {
	t.Helper()
	for _, dep := range linked {
		for _, f := range forbidden {
			if dep == f || strings.HasPrefix(dep, f+"/") {
				t.Errorf("%s links %s, which its rule excludes", dir, dep)
			}
		}
	}
}

// testHelpers are packages that only tests import, by a part of their path.
var testHelpers = []string{"critest", "nodetest", "seqtest", "hosttest", "internal/base/race", "internal/base/memtest",
	"internal/base/filetest", "internal/base/commandtest"}

// product reports whether a file is shipped code.
func product(path string) bool {
	first, _, _ := strings.Cut(filepath.ToSlash(path), "/")
	helper := slices.ContainsFunc(testHelpers, func(name string) bool { return strings.Contains(path, name) })
	return first != "e2e" && !strings.HasSuffix(path, "_test.go") && !helper
}

// ownFile is the name of a file of the package itself, in the table that its comment has.
var ownFile = regexp.MustCompile(`(?:^|[^/\w.])(\w+\.go)\b`)

// The comment of a package with more than two files has a table of exactly these files.
func TestPackagesNameTheirFiles(t *testing.T) {
	files, table := map[string][]string{}, map[string][]string{}
	for _, path := range goFiles(t) {
		if !product(path) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir, name := filepath.Split(path)
		if name != "doc.go" {
			files[dir] = append(files[dir], name)
		}
		if file.Doc != nil {
			for line := range strings.Lines(file.Doc.Text()) {
				if !strings.HasPrefix(line, "\t") { // no line of a table
					continue
				}
				for _, m := range ownFile.FindAllStringSubmatch(line, -1) {
					table[dir] = append(table[dir], m[1])
				}
			}
		}
	}
	for dir, names := range files {
		if len(names) <= 2 && len(table[dir]) == 0 {
			continue
		}
		for _, name := range names {
			if !slices.Contains(table[dir], name) {
				t.Errorf("%s: the package's comment does not name %s", dir, name)
			}
		}
		for _, name := range table[dir] {
			if !slices.Contains(names, name) {
				t.Errorf("%s: the package's comment names %s, which does not exist", dir, name)
			}
		}
	}
}

// Widths of product code in characters; a tab counts as one. At most maxWideShare of all lines may be wider than wideLine.
const (
	maxLine      = 120
	wideLine     = 100
	maxWideShare = 0.02
)

// Lines of raw strings are printed as they stand, so that their width is the reader's.
func TestLinesAreReadable(t *testing.T) {
	lines, wide := 0, 0
	for _, path := range goFiles(t) {
		if !product(path) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		printed, n := rawStringLines(t, path, text), 0
		for line := range strings.Lines(string(text)) {
			n++
			width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if lines++; width > wideLine {
				wide++
			}
			if width > maxLine && !printed[n] {
				t.Errorf("%s:%d: %d characters wide, want at most %d", path, n, width, maxLine)
			}
		}
	}
	if share := float64(wide) / float64(lines); share > maxWideShare {
		t.Errorf("%d of %d lines are wider than %d, want at most %.0f %%", wide, lines, wideLine, 100*maxWideShare)
	}
}

// otherUnit matches an amount of bytes, or the format of one, in another unit than Ki, Mi or Gi.
var otherUnit = regexp.MustCompile(`(%[0-9.]*[dfvs]|[0-9]) ?[kKMGT]i?B\b`)

// Texts of the programs and the demo have the units of Kubernetes, as in thresholds and requests: 100Mi, not 100 MiB or 100 MB.
func TestAmountsHaveKubernetesUnits(t *testing.T) {
	demo := filepath.Join("e2e", "demo") + string(filepath.Separator)
	for _, path := range goFiles(t) {
		if !product(path) && !strings.HasPrefix(path, demo) || path == filepath.Join("reclaim", "image.go") { // a text of the kubelet
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && otherUnit.MatchString(text.Value) {
				t.Errorf("%s has the amount %q, want Ki, Mi or Gi", path, otherUnit.FindString(text.Value))
			}
			return true
		})
	}
}

// rawStringLines returns the numbers of the lines of raw strings that span several lines.
func rawStringLines(t *testing.T, path string, text []byte) map[int]bool {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, "`") {
			for i := set.Position(lit.Pos()).Line; i <= set.Position(lit.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

// maxFields limits the fields of the agent's loop: further state belongs to a part.
const maxFields = 15

func TestTheLoopIsSmall(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "internal/agent/loop.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "loop" {
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				fields += max(1, len(f.Names))
			}
		}
		return true
	})
	if fields == 0 || fields > maxFields {
		t.Errorf("the loop has %d fields, want at most %d", fields, maxFields)
	}
}

// testsOnly is product code that only tests reach, with the reason.
var testsOnly = []string{
	"Fixed",   // of terminal: a screen of a width, for outputs that are compared with files
	"AddFile", // of cgroup.Watcher and wakes.Wakes: stands for the events of a pod, which a tree of files has none of
}

// A function of product code that no command reaches is dead, or used only by tests. Package api also serves other programs.
func TestProductCodeIsReached(t *testing.T) {
	out := output(t, "tool", "-modfile=tools.mod", "deadcode",
		"-filter=^jettison/(admit|cgroup|cluster|cri|eviction|internal|reclaim|stats)", "./cmd/...")
	reached := linked(t, "cmd/...")
	for dir := range importsByFolder(t) {
		if strings.HasPrefix(dir, "pods/") { // until cmd/jettison-pods exists
			continue
		}
		if product(dir) && dir != "." && !strings.HasPrefix(dir, "deploy") && !slices.Contains(reached, "jettison/"+dir) {
			t.Errorf("no command links %s: it is dead code", dir)
		}
	}
	for line := range strings.Lines(out) {
		exempt := slices.ContainsFunc(testsOnly, func(name string) bool { return strings.Contains(line, name) })
		if product(line) && !exempt {
			t.Error(strings.TrimSpace(line))
		}
	}
}

// codeFile is a Go file that a page names, with or without its folder.
var codeFile = regexp.MustCompile("`([\\w./-]*\\w\\.go)`")

// Pages name Go files that exist. A page may leave out leading folders. Files of Kubernetes begin with pkg/.
func TestPagesNameFilesThatExist(t *testing.T) {
	known, pages := map[string]bool{}, 0
	for _, path := range goFiles(t) {
		for p := filepath.ToSlash(path); p != ""; _, p, _ = strings.Cut(p, "/") {
			known[p] = true
		}
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" || strings.Contains(path, "node_modules") {
			return err
		}
		pages++
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range codeFile.FindAllStringSubmatch(line, -1) {
				if !known[m[1]] && !strings.HasPrefix(m[1], "pkg/") {
					t.Errorf("%s:%d: file %s does not exist", path, i+1, m[1])
				}
			}
		}
		return err
	})
	if err != nil || pages < 20 {
		t.Errorf("read %d pages, error %v, want at least 20 pages and no error", pages, err)
	}
}
