# Sourced by the scripts beside it.

# A command that starts this version of Python (3.13, say), from the path or from pyenv; fails where there is none.
python_command() {
  installed="$(pyenv versions --bare 2>/dev/null | grep "^$1\." | tail -n 1 || true)"
  for command in "python$1" "env PYENV_VERSION=$installed python$1"; do
    if $command -c "import venv, ensurepip" 2>/dev/null; then
      echo "$command"
      return
    fi
  done
  return 1
}
