# Installation: <prefix>/bin/strata and what it looks for below <prefix>/share/strata, in the folders of the source tree
# (src/predict/shipped_folder.hpp), so that relative paths between them hold.
include(GNUInstallDirs)
install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(shipped ${CMAKE_INSTALL_DATADIR}/strata)
install(DIRECTORY experiments DESTINATION ${shipped})
install(DIRECTORY jobscripts/sites jobscripts/templates DESTINATION ${shipped}/jobscripts)
install(DIRECTORY results-schema DESTINATION ${shipped})
install(DIRECTORY analysis/strata_analysis DESTINATION ${shipped}/analysis PATTERN __pycache__ EXCLUDE)
install(FILES analysis/pyproject.toml DESTINATION ${shipped}/analysis)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Where it lies is known only now: modules for both languages, to be copied below a folder of MODULEPATH, and what shells
# complete, which the binary itself says.
install(CODE "
  set(PROJECT_VERSION ${PROJECT_VERSION})
  set(BINDIR ${CMAKE_INSTALL_BINDIR})
  set(prefix \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX})
  set(data \${prefix}/${CMAKE_INSTALL_DATADIR})
  foreach(language IN ITEMS lua tcl)
    set(file \${data}/strata/modulefiles/strata.\${language})
    configure_file(${PROJECT_SOURCE_DIR}/jobscripts/modulefiles/strata.\${language}.in \${file} @ONLY)
    message(STATUS \"Installing: \${file}\")
  endforeach()
  foreach(file IN ITEMS bash-completion/completions/strata zsh/site-functions/_strata)
    string(REGEX MATCH ^[a-z]+sh shell \${file})
    execute_process(COMMAND \${prefix}/\${BINDIR}/strata completion \${shell} OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE \${data}/\${file} \"\${script}\")
    message(STATUS \"Installing: \${data}/\${file}\")
  endforeach()")
