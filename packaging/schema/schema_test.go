package schema

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// files returns the names of the schemas in a directory.
func files(t *testing.T, dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names
}

// TestFiles_Generated_AreThoseOfTheRepository: the files in this directory are those of the types
// and comments.
func TestFiles_Generated_AreThoseOfTheRepository(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "-tags", "packaging", "./cmd/bakeryctl", "generate-schemas", dir)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	const again = "write it again: go run -tags packaging ./cmd/bakeryctl generate-schemas packaging/schema"
	require.Equal(t, files(t, dir), files(t, "."), again)
	require.Greater(t, len(files(t, dir)), 10)
	for _, name := range files(t, dir) {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := Files.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: %s", name, again)
	}
}

// eachType calls f with each type of each file.
func eachType(t *testing.T, f func(file, of string, d definition)) {
	t.Helper()
	for _, name := range files(t, ".") {
		text, err := Files.ReadFile(name)
		require.NoError(t, err)
		var document struct {
			Definitions map[string]definition `json:"$defs"`
			Components  struct{ Schemas map[string]definition }
		}
		require.NoError(t, json.Unmarshal(text, &document))
		for _, all := range []map[string]definition{document.Definitions, document.Components.Schemas} {
			for of, d := range all {
				f(name, of, d)
			}
		}
	}
}

// TestFiles_EveryMember_IsDescribed: each type, and each of its members, has a comment in the
// source.
func TestFiles_EveryMember_IsDescribed(t *testing.T) {
	t.Parallel()
	members := 0
	eachType(t, func(file, of string, d definition) {
		require.NotEmpty(t, d.Description, "%s: type %s", file, of)
		for member, p := range d.Properties {
			members++
			require.True(t, p.Description != "" || len(p.OneOf) == 2 && p.OneOf[0].Description != "", "%s: %s of %s", file, member, of)
		}
	})
	require.Greater(t, members, 300)
}

// TestFiles_Descriptions_NameMembersAsJSONDoes: no description has the Go name of a member of its
// type, such as LeaseMS, or a sentence that begins with it.
func TestFiles_Descriptions_NameMembersAsJSONDoes(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"LeaseMS", "Text"}, goNames("why continues Text until LeaseMS, mode", definition{
		Properties: map[string]definition{"lease_ms": {}, "text": {}, "mode": {}},
	}))
	eachType(t, func(file, of string, d definition) {
		require.Empty(t, goNames(strings.TrimPrefix(d.Description, of), d), "%s: %s", file, of)
		for member, p := range d.Properties {
			for _, about := range append([]definition{p}, p.OneOf...) {
				require.Empty(t, goNames(about.Description, d), "%s: %s of %s", file, member, of)
				require.Empty(t, goNames(strings.Join(about.Meanings, "\n"), d), "%s: %s of %s", file, member, of)
			}
		}
	})
}

var capitalised = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)

// goNames returns the words of a text that are Go names of members, sorted.
func goNames(text string, d definition) []string {
	var found []string
	for _, word := range capitalised.FindAllString(text, -1) {
		for member := range d.Properties {
			if strings.EqualFold(word, strings.ReplaceAll(member, "_", "")) && word != strings.ToUpper(word) { // UUID is also English
				found = append(found, word)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// definition is a part of a schema.
type definition struct {
	Description string
	Meanings    []string `json:"x-enum-descriptions"`
	Properties  map[string]definition
	OneOf       []definition
}

// TestFiles_AsSchemas_AreValid: each file is a schema of its dialect, and no reference in it is
// broken.
func TestFiles_AsSchemas_AreValid(t *testing.T) {
	t.Parallel()
	for _, name := range files(t, ".") {
		c := jsonschema.NewCompiler()
		text, err := Files.Open(name)
		require.NoError(t, err)
		document, err := jsonschema.UnmarshalJSON(text)
		require.NoError(t, err)
		require.NoError(t, c.AddResource(name, document))
		if name != "openapi.json" {
			_, err = c.Compile(name)
			require.NoError(t, err, name)
			continue
		}
		schemas := document.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
		for of := range schemas {
			_, err = c.Compile(name + "#/components/schemas/" + of)
			require.NoError(t, err, of)
		}
	}
}
