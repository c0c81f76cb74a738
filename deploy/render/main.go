// Command render prints what `kubectl apply -k` would apply: render FOLDER. It is a separate
// module, run in its folder.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("want one folder with a kustomization.yaml, got %d arguments", len(os.Args)-1))
	}
	text, err := render(filesys.MakeFsOnDisk(), os.Args[1])
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fail(err)
	}
}

// render returns the YAML of all objects of a folder, with kubectl's restrictions: only other
// folders may be referenced.
func render(fs filesys.FileSystem, folder string) ([]byte, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, folder)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	return resources.AsYaml()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "render:", err)
	os.Exit(1)
}
