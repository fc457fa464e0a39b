/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The habits of the project that a machine can check, as an ordinary test: which room may include
 * which, headers that stand alone, public functions with a manual page, lengths, where printing is
 * allowed, licence lines.
 *
 *   tidy ROOT CC CXX          checks the tree, prints "path:line: rule: words" for each fault
 *   tidy ROOT CC CXX EXPECTED the same over a tree of faults: passes where exactly the lines
 *                             "path:line: rule" of the file EXPECTED were found
 *
 * Build folders, dot folders and tests/data/ are skipped.
 */
#include <ctype.h>
#include <fts.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT_OF(array)  (sizeof(array) / sizeof((array)[0]))
#define MAX_LINE_COLUMNS 100u
#define MAX_FILE_LINES   600u
#define MAX_FILE_BYTES   (16l << 20)

/* The rooms and their levels; a file includes its own room and rooms of lower levels. */
static const struct room {
  const char *name;
  int level;
  bool public_only; /* sees include/memrun/ and itself alone */
  bool has_door;    /* others include it, so a header named after it opens with its theory */
} rooms[] = {
    {"base", 0, false, true},     {"graph", 1, false, true},     {"device", 1, false, true},
    {"plan", 2, false, true},     {"allocator", 2, false, true}, {"comm", 2, false, true},
    {"offload", 3, false, true},  {"recompute", 3, false, true}, {"pipeline", 4, false, true},
    {"parallel", 4, false, true}, {"runtime", 5, false, true},   {"preload", 6, false, true},
    {"train", 6, true, true},     {"tools", 7, false, false},    {"bench", 7, false, false},
    {"tests", 8, false, false},   {"include", -1, true, false},  {"examples", 8, true, false},
};

/* Rooms in which a person reads what is printed. */
static const char *const printing_rooms[] = {"tools", "train", "bench", "tests", "examples"};

/* Files that a rule does not bind, each with its reason. */
static const struct exception {
  const char *path;
  const char *rule;
  const char *reason;
} exceptions[] = {
    {"base/log.c", "printing", "the default sink of the log is standard error"},
};

enum language { LANGUAGE_NONE, LANGUAGE_C, LANGUAGE_SCRIPT, LANGUAGE_MANUAL, LANGUAGE_TEXT };

struct source {
  const char *path; /* from the root */
  const struct room *room;
  enum language language;
  char *text;
  char *code; /* of C: the text with comments and the insides of literals blanked */
  size_t length;
};

struct tidy {
  char *root;
  char *cc;
  char *cxx;
  bool quiet; /* over a tree of faults */
  FILE *findings;
  unsigned count;
  bool room_seen[COUNT_OF(rooms)];
  bool door_seen[COUNT_OF(rooms)];
};

__attribute__((format(printf, 5, 6))) static void report(struct tidy *tidy, const char *path,
                                                         unsigned line, const char *rule,
                                                         const char *format, ...) {
  for (size_t i = 0; i < COUNT_OF(exceptions); i++) {
    if (strcmp(exceptions[i].path, path) == 0 && strcmp(exceptions[i].rule, rule) == 0) {
      return;
    }
  }
  tidy->count++;
  fprintf(tidy->findings, "%s:%u: %s\n", path, line, rule);
  if (tidy->quiet) {
    return;
  }
  printf("%s:%u: %s: ", path, line, rule);
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\n');
}

static void die(const char *what, const char *path) {
  fprintf(stderr, "tidy: %s: ", path);
  perror(what);
  exit(2);
}

/* The whole file with a terminating 0, to be freed; NULL where it cannot be opened. */
static char *read_file(const char *path, size_t *length_out) {
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return NULL;
  }
  if (fseek(file, 0, SEEK_END) != 0) {
    die("seek", path);
  }
  long length = ftell(file);
  if (length < 0 || length > MAX_FILE_BYTES) {
    die("length", path);
  }
  rewind(file);
  char *text = malloc((size_t)length + 1);
  if (text == NULL || fread(text, 1, (size_t)length, file) != (size_t)length) {
    die("read", path);
  }
  fclose(file);
  text[length] = '\0';
  *length_out = (size_t)length;
  return text;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text);
  size_t end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static enum language language_of(const char *path) {
  static const struct {
    const char *end;
    enum language language;
  } ends[] = {
      {".c", LANGUAGE_C},
      {".h", LANGUAGE_C},
      {".cc", LANGUAGE_C},
      {".cu", LANGUAGE_C},
      {".cuh", LANGUAGE_C},
      {".py", LANGUAGE_SCRIPT},
      {".sh", LANGUAGE_SCRIPT},
      {".bash", LANGUAGE_SCRIPT},
      {".cmake", LANGUAGE_SCRIPT},
      {".in", LANGUAGE_SCRIPT},
      {"CMakeLists.txt", LANGUAGE_SCRIPT},
      {".ci/run", LANGUAGE_SCRIPT},
      {".1", LANGUAGE_MANUAL},
      {".3", LANGUAGE_MANUAL},
      {".md", LANGUAGE_TEXT},
  };
  for (size_t i = 0; i < COUNT_OF(ends); i++) {
    if (ends_with(path, ends[i].end)) {
      return ends[i].language;
    }
  }
  return strcmp(path, "dev") == 0 ? LANGUAGE_SCRIPT : LANGUAGE_NONE;
}

/* The room that a path from the root begins with; NULL where it is none. */
static const struct room *room_of(const char *path) {
  size_t length = strcspn(path, "/");
  for (size_t i = 0; i < COUNT_OF(rooms); i++) {
    if (strlen(rooms[i].name) == length && strncmp(rooms[i].name, path, length) == 0 &&
        path[length] == '/') {
      return &rooms[i];
    }
  }
  return NULL;
}

/* Where the comment or literal that begins at `at` ends; `at` itself where none begins. */
static size_t skip_span(const char *text, size_t at) {
  const char *from = text + at;
  if (strncmp(from, "/*", 2) == 0) {
    const char *end = strstr(from + 2, "*/");
    return end == NULL ? at + strlen(from) : (size_t)(end + 2 - text);
  }
  if (strncmp(from, "//", 2) == 0) {
    return at + strcspn(from, "\n");
  }
  if (*from != '"' && *from != '\'') {
    return at;
  }
  size_t end = at + 1;
  while (text[end] != '\0' && text[end] != '\n' && text[end] != *from) {
    end += text[end] == '\\' && text[end + 1] != '\0' ? 2 : 1;
  }
  return text[end] == *from ? end + 1 : end;
}

/* A copy of C text in which comments and literals are spaces, so that words found are code. */
static char *blank_comments(const char *text, size_t length) {
  char *code = malloc(length + 1);
  if (code == NULL) {
    die("memory", "a source");
  }
  memcpy(code, text, length + 1);
  for (size_t at = 0; at < length;) {
    size_t end = skip_span(text, at);
    for (size_t i = at; i < end; i++) {
      code[i] = text[i] == '\n' ? '\n' : ' ';
    }
    at = end > at ? end : at + 1;
  }
  return code;
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) != 0 || c == '_';
}

static bool equals_any(const char *word, size_t length, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strlen(list[i]) == length && strncmp(list[i], word, length) == 0) {
      return true;
    }
  }
  return false;
}

/* Words that promise work instead of doing it, and printing where no person reads. */
static void check_words(struct tidy *tidy, const struct source *source) {
  static const char *const promises[] = {"TO"
                                         "DO",
                                         "FIX"
                                         "ME",
                                         "XX"
                                         "X",
                                         "HA"
                                         "CK"};
  static const char *const printers[] = {"printf", "vprintf", "puts", "putchar", "perror"};
  static const char *const streams[] = {"stdout", "stderr"};
  bool may_print = source->room == NULL || source->language != LANGUAGE_C ||
                   equals_any(source->room->name, strlen(source->room->name), printing_rooms,
                              COUNT_OF(printing_rooms));
  unsigned line = 1;
  for (size_t at = 0; at < source->length;) {
    size_t end = at;
    while (end < source->length && is_word(source->text[end])) {
      end++;
    }
    size_t length = end - at;
    const char *word = source->text + at;
    if (length == 0) {
      line += *word == '\n';
      at++;
      continue;
    }
    if (equals_any(word, length, promises, COUNT_OF(promises))) {
      report(tidy, source->path, line, "promise", "'%.*s': do it or leave it", (int)length, word);
    }
    const char *code = source->code == NULL ? "" : source->code + at;
    bool prints = (equals_any(code, length, printers, COUNT_OF(printers)) &&
                   code[length + strspn(code + length, " ")] == '(') ||
                  equals_any(code, length, streams, COUNT_OF(streams));
    if (!may_print && prints) {
      report(tidy, source->path, line, "printing", "'%.*s': a library logs with mr_log",
             (int)length, word);
    }
    at = end;
  }
}

static void check_lines(struct tidy *tidy, const struct source *source) {
  unsigned line = 0;
  for (const char *from = source->text; *from != '\0';) {
    size_t length = strcspn(from, "\n");
    line++;
    unsigned columns = 0;
    for (size_t i = 0; i < length; i++) {
      columns += ((unsigned char)from[i] & 0xc0u) != 0x80u; /* not a UTF-8 continuation */
    }
    if (columns > MAX_LINE_COLUMNS) {
      report(tidy, source->path, line, "long-line", "%u columns of at most %u", columns,
             MAX_LINE_COLUMNS);
    }
    if (memchr(from, '\t', length) != NULL) {
      report(tidy, source->path, line, "tab", "indent with spaces");
    }
    if (length > 0 && isspace((unsigned char)from[length - 1]) != 0) {
      report(tidy, source->path, line, "trailing-space", "white space at the end of the line");
    }
    from += length + (from[length] == '\n');
  }
  if (line > MAX_FILE_LINES) {
    report(tidy, source->path, line, "long-file", "%u lines of at most %u", line, MAX_FILE_LINES);
  }
  if (source->length > 0 && source->text[source->length - 1] != '\n') {
    report(tidy, source->path, line, "no-newline", "the last line has no end");
  }
}

/* The licence comes first, after the interpreter of a script; then a comment says what this is. */
static void check_opening(struct tidy *tidy, const struct source *source) {
  static const char *const licences[] = {
      [LANGUAGE_C] = "/* SPDX-License-Identifier: Apache-2.0 */\n",
      [LANGUAGE_SCRIPT] = "# SPDX-License-Identifier: Apache-2.0\n",
      [LANGUAGE_MANUAL] = ".\\\" SPDX-License-Identifier: Apache-2.0\n",
  };
  const char *licence = licences[source->language];
  const char *text = source->text;
  if (source->language == LANGUAGE_SCRIPT && strncmp(text, "#!", 2) == 0) {
    text += strcspn(text, "\n") + 1;
  }
  if (strncmp(text, licence, strlen(licence)) != 0) {
    report(tidy, source->path, 1, "licence", "must begin with %.*s", (int)strlen(licence) - 1,
           licence);
  } else if (source->language == LANGUAGE_C && strncmp(text + strlen(licence), "/*", 2) != 0) {
    report(tidy, source->path, 2, "opening", "a paragraph must say what the file is");
  }
}

static const char *include_fault(const struct source *source, const char *target, bool quoted) {
  const struct room *own = source->room;
  const struct room *room = room_of(target);
  if (!quoted) {
    return room == NULL ? NULL : "a room's header is included with quotes";
  }
  if (own == NULL) {
    return "a file outside the rooms includes public headers alone";
  }
  if (strncmp(target, "memrun/", 7) == 0) {
    return "public headers are included as <memrun/...>";
  }
  bool beside = room == NULL && strcmp(own->name, "tests") == 0; /* from tests/, among tests */
  if (beside && strstr(target, "..") == NULL) {
    return NULL;
  }
  if (room == NULL || strstr(target, "..") != NULL) {
    return "included paths begin at the root, with a room";
  }
  if (own->public_only && (room != own || strcmp(own->name, "train") != 0)) {
    return "only <memrun/...> is visible from here";
  }
  if (room != own && room->level == own->level) {
    return "the room is on the same level: never sideways";
  }
  return room->level > own->level ? "the room is on a higher level: never up" : NULL;
}

static void check_includes(struct tidy *tidy, const struct source *source) {
  unsigned line = 0;
  for (size_t at = 0; at < source->length;) {
    size_t length = strcspn(source->text + at, "\n");
    line++;
    const char *code = source->code + at;
    code += strspn(code, " ");
    bool directive = *code == '#';
    code += directive;
    code += strspn(code, " ");
    if (directive && strncmp(code, "include", 7) == 0) {
      const char *open = source->text + (code - source->code) + 7;
      open += strspn(open, " ");
      char target[256];
      size_t target_length = strcspn(open + 1, ">\"\n");
      if (target_length < sizeof target) {
        memcpy(target, open + 1, target_length);
        target[target_length] = '\0';
        const char *fault = include_fault(source, target, *open == '"');
        if (fault != NULL) {
          report(tidy, source->path, line, "layering", "%s: %s", target, fault);
        }
      }
    }
    at += length + 1;
  }
}

/* Whether `arguments` run as a program end with status 0. */
static bool runs(const struct tidy *tidy, char *const *arguments) {
  posix_spawn_file_actions_t actions;
  pid_t child = 0;
  int status = 0;
  if (posix_spawn_file_actions_init(&actions) != 0 ||
      (tidy->quiet &&
       posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0) != 0) ||
      posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ) != 0 ||
      waitpid(child, &status, 0) != child) {
    die("run", arguments[0]);
  }
  posix_spawn_file_actions_destroy(&actions);
  return status == 0;
}

static void check_stands_alone(struct tidy *tidy, const struct source *source) {
  char file[4096];
  char root[4096];
  char include[4096];
  snprintf(file, sizeof file, "%s/%s", tidy->root, source->path);
  snprintf(root, sizeof root, "-I%s", tidy->root);
  snprintf(include, sizeof include, "-I%s/include", tidy->root);
  char *const c[] = {tidy->cc, "-fsyntax-only", "-x",      "c",  "-std=c11", "-D_GNU_SOURCE",
                     "-Wall",  "-Wextra",       "-Werror", root, include,    file,
                     NULL};
  if (!runs(tidy, c)) {
    report(tidy, source->path, 1, "self-contained", "does not compile alone as C");
  }
  char *const cxx[] = {tidy->cxx, "-fsyntax-only", "-x",    "c++", "-std=c++17", "-Wall",
                       "-Wextra", "-Werror",       include, file,  NULL};
  if (strcmp(source->room->name, "include") == 0 && !runs(tidy, cxx)) {
    report(tidy, source->path, 1, "self-contained", "does not compile alone as C++");
  }
}

/* Whether the manual page sets out the function, as .Fo or .Fn. */
static bool page_has(const char *page, const char *function, size_t length) {
  for (const char *at = strstr(page, "\n.F"); at != NULL; at = strstr(at + 1, "\n.F")) {
    const char *name = at + 3;
    if ((*name == 'o' || *name == 'n') && strncmp(name + 2, function, length) == 0 &&
        !is_word(name[2 + length])) {
      return true;
    }
  }
  return false;
}

/* Each public header but the one that includes all has a page that names its functions. */
static void check_manual(struct tidy *tidy, const struct source *source) {
  const char *name = strrchr(source->path, '/') + 1;
  if (strcmp(name, "memrun.h") == 0) {
    return;
  }
  char path[4096];
  size_t page_length = 0;
  snprintf(path, sizeof path, "%s/man/memrun_%.*s.3", tidy->root, (int)strlen(name) - 2, name);
  char *page = read_file(path, &page_length);
  if (page == NULL) {
    report(tidy, source->path, 1, "manual", "has no page man/memrun_%.*s.3", (int)strlen(name) - 2,
           name);
    return;
  }
  unsigned line = 1;
  for (const char *at = source->code; *at != '\0'; at++) {
    line += *at == '\n';
    if (strncmp(at, "mr_", 3) == 0 && (at == source->code || !is_word(at[-1]))) {
      size_t length = 3;
      while (is_word(at[length])) {
        length++;
      }
      if (at[length] == '(' && !page_has(page, at, length)) {
        report(tidy, source->path, line, "manual", "%.*s is not in the page", (int)length, at);
      }
    }
  }
  free(page);
}

/* Notes which rooms exist and which have a front door. */
static void note_room(struct tidy *tidy, const struct source *source) {
  char door[256];
  size_t index = (size_t)(source->room - rooms);
  snprintf(door, sizeof door, "%s/%s.h", source->room->name, source->room->name);
  tidy->room_seen[index] = true;
  tidy->door_seen[index] = tidy->door_seen[index] || strcmp(door, source->path) == 0;
}

static void check_file(struct tidy *tidy, const char *path) {
  struct source source = {.path = path, .room = room_of(path), .language = language_of(path)};
  if (source.language == LANGUAGE_NONE) {
    return;
  }
  char full[4096];
  snprintf(full, sizeof full, "%s/%s", tidy->root, path);
  source.text = read_file(full, &source.length);
  if (source.text == NULL) {
    die("open", full);
  }
  if (source.language == LANGUAGE_C) {
    source.code = blank_comments(source.text, source.length);
    check_includes(tidy, &source);
    if (source.room != NULL) {
      note_room(tidy, &source);
    }
    if (source.room != NULL && ends_with(path, ".h")) {
      check_stands_alone(tidy, &source);
      if (strncmp(path, "include/memrun/", 15) == 0) {
        check_manual(tidy, &source);
      }
    }
  }
  if (source.language != LANGUAGE_TEXT) {
    check_opening(tidy, &source);
    check_lines(tidy, &source);
  }
  check_words(tidy, &source);
  free(source.code);
  free(source.text);
}

static int by_name(const FTSENT **a, const FTSENT **b) {
  return strcmp((*a)->fts_name, (*b)->fts_name);
}

static bool is_skipped(const char *path) {
  return strcmp(path, "build") == 0 || strcmp(path, "tests/data") == 0 ||
         (path[0] == '.' && strcmp(path, ".ci") != 0);
}

static void walk(struct tidy *tidy) {
  char *const roots[] = {tidy->root, NULL};
  FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
  if (tree == NULL) {
    die("walk", tidy->root);
  }
  size_t prefix = strlen(tidy->root) + 1;
  for (FTSENT *entry = fts_read(tree); entry != NULL; entry = fts_read(tree)) {
    const char *path = entry->fts_pathlen < prefix ? "" : entry->fts_path + prefix;
    if (entry->fts_info == FTS_D && is_skipped(path)) {
      fts_set(tree, entry, FTS_SKIP);
    } else if (entry->fts_info == FTS_F) {
      check_file(tidy, path);
    }
  }
  fts_close(tree);
  for (size_t i = 0; i < COUNT_OF(rooms); i++) {
    if (tidy->room_seen[i] && !tidy->door_seen[i] && rooms[i].has_door) {
      report(tidy, rooms[i].name, 0, "front-door", "%s/%s.h is missing", rooms[i].name,
             rooms[i].name);
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) {
    fprintf(stderr, "usage: tidy ROOT CC CXX [EXPECTED]\n");
    return 2;
  }
  char *found = NULL;
  size_t found_length = 0;
  struct tidy tidy = {.root = argv[1], .cc = argv[2], .cxx = argv[3], .quiet = argc == 5};
  tidy.findings = open_memstream(&found, &found_length);
  if (tidy.findings == NULL) {
    die("memory", "findings");
  }
  walk(&tidy);
  fclose(tidy.findings);
  bool passed = tidy.count == 0;
  if (argc == 5) {
    size_t expected_length = 0;
    char *expected = read_file(argv[4], &expected_length);
    if (expected == NULL) {
      die("open", argv[4]);
    }
    passed = strcmp(expected, found) == 0;
    printf("%s\n--- found\n%s--- expected\n%s", passed ? "as expected" : "not as expected", found,
           expected);
    free(expected);
  } else {
    printf("%u faults\n", tidy.count);
  }
  free(found);
  return passed ? 0 : 1;
}
