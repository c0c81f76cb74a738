package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// Helm builds helm, two minutes the first time, and returns its folder. The version is that of the
// library in the chart's tests.
func Helm(ctx context.Context, say Say) (string, error) {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "deploy", "helm", "go.mod")
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	version, module, err := helmModule(source)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return Cached("helm-"+version+"-"+runtime.Version(), say, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), module, 0o644); err != nil {
			return err
		}
		env := []string{"GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0"}
		_, err := Run(ctx, dir, env, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "helm.sh/helm/v4/cmd/helm")
		return err
	})
}

// helmLine matches the requirement of Helm in a go.mod.
var helmLine = regexp.MustCompile(`(?m)^\s*(helm\.sh/helm/v4) (v\S+)$`)

// helmModule derives, from the go.mod of the chart's tests, that of a module which requires only
// Helm. It returns Helm's version, too.
func helmModule(source []byte) (version string, module []byte, err error) {
	helm, language := helmLine.FindSubmatch(source), languageLine.Find(source)
	if helm == nil || language == nil {
		return "", nil, errors.New("no line `go`, or no requirement of helm.sh/helm/v4")
	}
	return string(helm[2]), fmt.Appendf(nil, "module helm\n\n%s\n\nrequire %s %s\n", language, helm[1], helm[2]), nil
}
